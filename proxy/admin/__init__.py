"""The admin port: health, metrics, workers and configuration of all processes of one supervisor."""
