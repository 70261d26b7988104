"""An open-loop load generator for OpenAI-style endpoints; `loadtests/load.py` is its command."""
