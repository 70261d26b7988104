"""What `hedge` can be told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final, Literal

from tailrace.proxy.config import Above, AtLeast, AtMost, Seconds, SecondsOrOff, setting

QUANTILES: Final = {"p90": 0.90, "p95": 0.95, "p98": 0.98, "p99": 0.99}


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstToken:
    """A limit on the wait for first content that moves a call to another worker instead of racing two."""

    times: Annotated[float, Above(1)] = setting(
        default=4.0, help="the limit, as so many times what is usual for such calls (`after`)"
    )
    at_least: Annotated[Seconds, Above(0)] = setting(default=1.0, help="the least that it is")


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """When a second worker is asked beside a slow one, and how often at most."""

    race: bool = setting(default=True, help="whether two are raced at all; false leaves `first_token_timeout`")
    after: Literal["p90", "p95", "p98", "p99"] = setting(
        default="p95",
        help="the wait for first content after which the second is asked: what so many of the calls of the last 30 s "
        "stay below, by model and size of the prompt; up to half longer, the more of `extra` is spent",
        why="a twentieth of the calls gets nearly all of the gain",
    )
    floor_ms: Annotated[float, AtLeast(0)] = setting(
        default=30.0, help="and never sooner than this", why="below, noise is hedged"
    )
    samples: Annotated[int, AtLeast(1)] = setting(
        default=30, help="of how many such calls must be known what is usual", why="a p95 of few is their longest"
    )
    unknown: SecondsOrOff = setting(
        default=2.0,
        help="the wait where it is not known, for an empty prompt; longer ones get as much more as they get of "
        "`timeouts.first_content`. 0 is off",
    )
    extra: Annotated[float, Above(0), AtMost(1)] = setting(
        default=0.05,
        help="second attempts for each call of the last 30 s; where calls are few, what they leave unspent is put by "
        "until it is one",
        why="hedges must not become the load",
    )
    loaded: Annotated[int, AtLeast(1)] = setting(
        default=2, help="so many calls waiting in a worker make it too busy for second attempts"
    )
    unary: bool = setting(
        default=False,
        help="whole answers of text, too, by the time they take",
        why="how long they take is how long they are; the loser has computed most of one",
    )
    first_token_timeout: FirstToken | None = setting(
        default=None, help="a limit after which the call moves to another worker, raced or not"
    )
