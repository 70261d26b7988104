"""Why a worker gets no calls, in the words of `tailrace workers list`."""

from __future__ import annotations

from typing import Any

import pytest
from tailrace.proxy.commands.workers import table

REFUSED = "no connection (Connection refused)"


def told(**said: Any) -> str:
    standing = {"ready": True, "draining": False, "dead": False, "running": 0, "waiting": 0, "reason": ""}
    standing |= {name: said.pop(name) for name in tuple(said) if name in standing}
    worker: dict[str, Any] = {
        "worker": "http://w", "pools": ["p"], "origins": ["static"], "lease": None, "time_left": None, "weight": 1.0,
        "region": "", "bars": [], "gets_calls": False, "drained": False, "inflight": 0, "standing": standing,
    }  # fmt: skip
    headings, row = table([worker | said]).splitlines()
    return row[headings.index("WHY") :] if len(row) > headings.index("WHY") else ""


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"gets_calls": True}, ""),
        ({"dead": True, "draining": True, "bars": ["silent", "suspect"], "reason": REFUSED}, f"gone: {REFUSED}"),
        ({"dead": True, "ready": False, "reason": "engine: its process ended"}, "gone: engine: its process ended"),
        ({"bars": ["silent", "suspect"]}, "silent"),
        ({"draining": True, "ready": False, "bars": ["suspect"]}, "draining"),
        ({"ready": False, "reason": "it loads"}, "not ready: it loads"),
        ({"bars": ["breaker", "suspect"]}, "circuit open and suspect"),
        ({"bars": ["suspect"], "gets_calls": True}, "suspect, but one of the last of its pool"),
        ({"drained": True}, "drained by an operator"),
        ({"drained": True, "time_left": 2.5}, "drained by an operator (2.5 s left)"),
        ({"drained": True, "dead": True, "reason": REFUSED}, f"drained by an operator; gone: {REFUSED}"),
        ({"gets_calls": True, "reason": "failed 9 of 9 attempts: 500 x"}, "failed 9 of 9 attempts: 500 x"),
    ],
)
def test_the_strongest_word_is_the_one(said: dict[str, Any], why: str) -> None:
    assert told(**said) == why
