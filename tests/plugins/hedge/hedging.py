"""A `hedge` plugin to which the calls of a test are no news, and workers that accept."""

from __future__ import annotations

from typing import Any

from tailrace.plugins.hedge import Hedge
from tailrace.plugins.hedge.settings import Config


def hedging(usual: float | None = 0.01, **settings: Any) -> Any:
    """A plugin to which `usual` seconds are usual for the calls of these tests, and that has a hedge to spend."""
    plugin: Any = Hedge(Config(**{"floor_ms": 0.0, "extra": 1.0, "unknown": 0.0, **settings}))
    if usual is not None:
        plugin._latencies.usual = lambda kind, now: usual
    return plugin


def spoken(c: Any) -> None:
    for worker in c.workers:
        if worker.connections.opening:
            worker.accept()
