"""Where records go from the log to be asked for: SQLite beside the log, or PostgreSQL; each record there once."""

from pathlib import Path

from tailrace.proxy.ledger.sinks.postgres import PostgresSink
from tailrace.proxy.ledger.sinks.sink import Sink
from tailrace.proxy.ledger.sinks.sqlite import NAME, SqliteSink


def sink_of(url: str | None, state: Path, *, read_only: bool = False) -> Sink:
    """The sink behind a URL, or the one in the state folder where there is none; raises Down."""
    return PostgresSink(url) if url else SqliteSink(state / NAME, read_only=read_only)
