"""Where records go from the log to be asked for: SQLite beside the log, or PostgreSQL; each record there once."""
