"""What a YAML says about the calls that are remembered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tailrace.proxy.config import AtLeast, AtMost, Seconds, setting
from tailrace.proxy.trace.ring import CALLS, KEPT_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Traces:
    """How much is remembered."""

    calls: Annotated[int, AtLeast(0), AtMost(1_000_000)] = setting(
        default=CALLS,
        help="calls that each process remembers, and a quarter more of those that failed or needed several attempts; "
        "0 is off",
        why="some 8 MB",
    )
    kept: Seconds = setting(default=KEPT_S, help="for how long at most", why="time to get out of bed")
