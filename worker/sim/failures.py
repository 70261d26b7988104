"""Failures on demand: what may be asked for, and which request it strikes.

A fault is armed by a flag, by the control endpoint or by a test, and strikes the next requests that it matches.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from random import Random
from typing import Annotated, Any, Literal, get_args

from tailrace.proxy.config import Above, AtLeast, AtMost, Share, setting

Kind = Literal[
    "engine_killed", "server_killed", "sigterm", "queue_full", "rate_limited", "error", "hang", "stall", "cut",
    "half_event", "garbage_event", "slow", "unhealthy",
]  # fmt: skip

Amount = Annotated[float, AtLeast(0)]
Count = Annotated[int, AtLeast(0)]

AT_ONCE = ("queue_full", "rate_limited", "error", "hang")
"""Faults that strike when the request arrives."""
MIDWAY = ("engine_killed", "server_killed", "sigterm", "stall", "cut", "half_event", "garbage_event")
"""Faults that strike an answer after some of its tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One failure to be had.

    - `engine_killed`: every open answer gets an error event and a clean end; `/health` turns 503.
    - `server_killed`: every connection ends at once, with RST if `rst`; nothing listens any more.
    - `sigterm`: as if the signal had come: hangs open streams, or drains for `shutdown_timeout` seconds.
    - `queue_full` 503, `rate_limited` 429 with Retry-After, `error` with `status` and `message`.
    - `hang`: the request is read and never answered. `stall`: silence after some tokens.
    - `cut`: the connection ends after some tokens, with RST if `rst`; where they are not streamed, in the middle of the
      body. `half_event`: the same inside an event.
    - `garbage_event`: one event that is no JSON, then the stream goes on.
    - `slow`: everything takes `factor` times as long. `unhealthy`: `/health` says 503, nothing else is wrong.
    """

    fail: Kind = setting(help="which failure")
    after_tokens: Count | None = setting(default=None, help="strike when so many tokens of an answer are out")
    """Strike when so many tokens of an answer are out. Without it `engine_killed`, `server_killed` and `sigterm`
    strike at once; the others before the first token."""
    count: Count | None = setting(default=None, help="how many requests are struck; all if not given")
    route: str = setting(default="", help="only requests whose path starts so")
    share: Share = setting(default=1.0, help="part of the matching requests that is struck, drawn by chance")
    rst: bool = setting(default=False, help="end connections with a reset")
    status: Annotated[int, AtLeast(400), AtMost(599)] = setting(default=500, help="of the fail `error`")
    message: str = setting(default="Injected failure", help="of the fail `error`")
    retry_after: Amount = setting(default=1.0, help="seconds in the answer of `rate_limited`")
    factor: Annotated[float, Above(0)] = setting(default=10.0, help="how many times as long all takes with `slow`")
    shutdown_timeout: Amount = setting(default=0.0, help="seconds for which `sigterm` drains; 0 hangs open streams")
    exit_after_s: Amount | None = setting(
        default=None, help="after `engine_killed`: seconds until the whole server is gone"
    )


def fault_from(asked: object) -> Fault:
    """A fault from its JSON form; ValueError says what is wrong with it."""
    if not isinstance(asked, dict):
        raise ValueError("expected an object with a `fail` field")  # noqa: TRY004  one error for all nonsense
    known = {field.name for field in fields(Fault)}
    unknown = sorted(set(asked) - known)
    if unknown:
        raise ValueError(f"unknown field {unknown[0]!r}; known: {', '.join(sorted(known))}")
    if asked.get("fail") not in get_args(Kind):
        raise ValueError(f"`fail` must be one of {', '.join(get_args(Kind))}, or none")
    return Fault(**{name: _checked(name, value) for name, value in asked.items()})


def _checked(name: str, value: object) -> Any:
    if name in ("fail", "route", "message"):
        fits = isinstance(value, str)
    elif name == "rst":
        fits = isinstance(value, bool)
    elif name in ("after_tokens", "count"):
        fits = value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 0)
    elif name == "status":
        fits = isinstance(value, int) and 400 <= value <= 599
    else:
        fits = isinstance(value, int | float) and not isinstance(value, bool) and value >= 0
        fits = fits or (name == "exit_after_s" and value is None)
    if not fits:
        raise ValueError(f"`{name}` cannot be {value!r}")
    return value


class Failures:
    """The faults that are armed, oldest first."""

    def __init__(self, armed: tuple[Fault, ...], rng: Random) -> None:
        self._rng = rng
        self._armed = [fault for fault in armed if fault.count != 0]

    @property
    def armed(self) -> tuple[Fault, ...]:
        """What is armed now, `count` being what is left."""
        return tuple(self._armed)

    @property
    def unhealthy(self) -> bool:
        """Whether `/health` must say 503."""
        return any(fault.fail == "unhealthy" for fault in self._armed)

    def arm(self, fault: Fault) -> None:
        """Have a fault strike from now on."""
        if fault.count != 0:
            self._armed.append(fault)

    def clear(self) -> None:
        """Have nothing strike any more."""
        self._armed.clear()

    def draw(self, path: str) -> tuple[Fault, ...]:
        """The faults that strike a request to this path: at most one, and besides it slowness."""
        if not self._armed:
            return ()
        struck = [
            fault
            for fault in self._armed
            if fault.fail != "unhealthy"
            and path.startswith(fault.route)
            and (fault.share >= 1 or self._rng.random() < fault.share)
        ]
        hard = next((fault for fault in struck if fault.fail != "slow"), None)
        chosen = tuple(fault for fault in struck if fault.fail == "slow" or fault is hard)
        for fault in chosen:
            self._use(fault)
        return chosen

    def _use(self, fault: Fault) -> None:
        if fault.count is None:
            return
        at = next(i for i, armed in enumerate(self._armed) if armed is fault)
        if fault.count == 1:
            del self._armed[at]
        else:
            self._armed[at] = replace(fault, count=fault.count - 1)
