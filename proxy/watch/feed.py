"""The state feed as both ends know it: where it is, and what its lines mean for a worker's standing.

A line is a state, or empty: a sign of life. A sidecar says in its state how often a line comes.
"""

from __future__ import annotations

from typing import Any

import orjson
from tailrace.proxy.standing import Standing

PATH = "/x-tailrace/state"
MEDIA = b"application/x-ndjson"
LONGEST_LINE = 1 << 20
MOST_MODELS = 1000
BEAT = 0.1
"""Seconds from a line to the next one."""
SIGN_OF_LIFE = b"\n"
_SLOWEST = 10.0


class FeedError(Exception):
    """A line that no sidecar would write."""


def read_line(line: bytes) -> dict[str, Any]:
    """One line of a feed; raises FeedError."""
    try:
        state = orjson.loads(line)
    except orjson.JSONDecodeError:
        raise FeedError("its state is not JSON") from None
    if not isinstance(state, dict) or not isinstance(state.get("ready"), bool):
        raise FeedError("its state lacks what a sidecar says")
    return state


def apply(standing: Standing, state: dict[str, Any], now: float) -> bool:
    """Bring a standing up to a line; True where that changes who may get which calls."""
    before = (standing.takes_calls, standing.dead, standing.models)
    standing.ready = state["ready"]
    standing.draining = state.get("draining") is True
    standing.dead = state.get("dead") is True
    reason = state.get("reason")
    standing.reason = reason if isinstance(reason, str) else ""
    standing.forget_load()
    standing.running = _count(state.get("running"))
    standing.waiting = _count(state.get("waiting"))
    standing.kv_use = _number(state.get("kv_use"))
    standing.tokens_per_second = _number(state.get("tokens_per_second"))
    standing.concurrency = _count(state.get("concurrency"))
    standing.seen = standing.sampled = now
    if "models" in state:
        standing.models = models_of(state["models"])
    return before != (standing.takes_calls, standing.dead, standing.models)


def beat_of(state: dict[str, Any]) -> float:
    """Seconds after which a sidecar says that its next line comes; 0 where it does not say."""
    beat = _number(state.get("heartbeat"))
    return beat if beat is not None and BEAT / 2 <= beat <= _SLOWEST else 0.0


def age_of(state: dict[str, Any]) -> float:
    """Seconds for which the engine has been in the phase that it is in."""
    return _number(state.get("for")) or 0.0


def models_of(listed: object) -> dict[str, str]:
    """The models of a list, each with its base model or an empty text; what is malformed is left out."""
    found: dict[str, str] = {}
    for model in listed[:MOST_MODELS] if isinstance(listed, list) else ():
        if isinstance(model, dict) and isinstance(model.get("id"), str):
            parent = model.get("parent")
            found[model["id"]] = parent if isinstance(parent, str) else ""
    return found


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        return None
    return float(value)
