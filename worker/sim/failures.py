"""Failures on demand: what may be asked for, and which request it strikes.

A fault is armed by a flag, by the control endpoint or by a test, and strikes the next requests that it matches.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from math import prod
from random import Random
from typing import Annotated, Any, Literal, get_args

from tailrace.proxy.config import Above, AtLeast, AtMost, Share, setting

Kind = Literal[
    "engine_killed", "server_killed", "sigterm", "freeze",
    "queue_full", "rate_limited", "error", "hang", "drop", "not_http",
    "stall", "cut", "half_event", "garbage_event", "error_event", "abort", "false_end", "false_done",
    "slow", "wrong_usage", "no_usage",
    "unhealthy", "throttle", "accept_hang",
]  # fmt: skip

Amount = Annotated[float, AtLeast(0)]
Count = Annotated[int, AtLeast(0)]

OF_SERVER = ("engine_killed", "server_killed", "sigterm", "freeze")
"""Faults of the whole server; with `after_tokens` they wait for an answer to come so far."""
AT_ONCE = ("queue_full", "rate_limited", "error", "hang", "drop", "not_http")
"""Faults that strike when the request arrives."""
BESIDE = ("slow", "wrong_usage", "no_usage")
"""Faults that a request may have besides another one."""
LASTING = ("unhealthy", "throttle", "accept_hang")
"""Faults that hold while they are armed, whatever is asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One failure to be had.

    Of the whole server:

    - `engine_killed`: every open answer ends as vLLM ends it: on chat and completions an error event and a clean end,
      on messages an error event, on responses in the middle; `/health` turns 503.
    - `server_killed`: every connection ends at once, with RST if `rst`; nothing listens any more.
    - `sigterm`: as if the signal had come: hangs open streams, or drains for `shutdown_timeout` seconds.
    - `freeze`: as if SIGSTOP had come: connections are accepted, nothing is read, nothing said; until thawed.
    - `throttle`: everything takes `factor` times as long, also what runs already. `unhealthy`: `/health` says 503,
      nothing else is wrong. `accept_hang`: new connections are accepted and never heard.

    Of a request as it arrives: `queue_full` 503; `rate_limited` 429 with Retry-After; `error` with `status` and
    `message`; `hang`: read and never answered; `drop`: the connection ends without a byte, with RST if `rst`;
    `not_http`: bytes that are no HTTP.

    Of an answer after some tokens:

    - `stall`: silence. `cut`: the connection ends, with RST if `rst`; where tokens are not streamed, in the middle of
      the body. `half_event`: the same inside an event.
    - `garbage_event`: one event that is no JSON, then the stream goes on.
    - `error_event`: vLLM's error event with `message`, then its usual end. `abort`: the finish reason that vLLM gives
      what it drops. `false_end`: a clean end of the body without finish reason; `false_done`: the same after `[DONE]`.

    Besides any of these: `slow`: all takes `factor` times as long, for this request alone (with a `share` of 0.05 and a
    `factor` of 10 a gray failure); `wrong_usage`: token counts `factor` times too high, or the ones given; `no_usage`:
    none where they were asked for.
    """

    fail: Kind = setting(help="which failure")
    after_tokens: Count | None = setting(default=None, help="strike when so many tokens of an answer are out")
    """Strike when so many tokens of an answer are out. Without it faults of the whole server strike at once; the others
    before the first token."""
    count: Count | None = setting(default=None, help="how many requests are struck; all if not given")
    route: str = setting(default="", help="only requests whose path starts so")
    share: Share = setting(default=1.0, help="part of the matching requests that is struck, drawn by chance")
    rst: bool = setting(default=False, help="end connections with a reset")
    for_s: Amount | None = setting(default=None, help="seconds after which `hang`, `stall` and `freeze` are over")
    status: Annotated[int, AtLeast(400), AtMost(599)] = setting(default=500, help="of the fail `error`")
    message: str = setting(default="Injected failure", help="of the fails `error` and `error_event`")
    retry_after: Amount | None = setting(default=None, help="seconds in the head of a refusal; `rate_limited`: 1")
    factor: Annotated[float, Above(0)] = setting(
        default=10.0, help="how many times as long all takes, or as many tokens are told"
    )
    prompt_tokens: int | None = setting(default=None, help="what `wrong_usage` tells of the prompt")
    completion_tokens: int | None = setting(default=None, help="what `wrong_usage` tells of the answer")
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


_TEXTS = ("fail", "route", "message")
_OPTIONAL = {field.name: field.default is None for field in fields(Fault)}


def _checked(name: str, value: object) -> Any:
    if name in _TEXTS:
        fits = isinstance(value, str)
    elif name == "rst":
        fits = isinstance(value, bool)
    elif value is None:
        fits = _OPTIONAL[name]
    elif name in ("after_tokens", "count"):
        fits = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    elif name in ("prompt_tokens", "completion_tokens"):
        fits = isinstance(value, int) and not isinstance(value, bool)
    elif name == "status":
        fits = isinstance(value, int) and 400 <= value <= 599
    else:
        fits = isinstance(value, int | float) and not isinstance(value, bool) and value >= 0
        fits = fits and (name != "factor" or value != 0)
    if not fits:
        raise ValueError(f"`{name}` cannot be {value!r}")
    return value


class Failures:
    """The faults that are armed, oldest first; `changed` is called whenever others are."""

    def __init__(self, armed: tuple[Fault, ...], rng: Random, changed: Callable[[], None] = lambda: None) -> None:
        self._rng = rng
        self._changed = changed
        self._armed = [fault for fault in armed if fault.count != 0]

    @property
    def armed(self) -> tuple[Fault, ...]:
        """What is armed now, `count` being what is left."""
        return tuple(self._armed)

    @property
    def unhealthy(self) -> bool:
        """Whether `/health` must say 503."""
        return any(fault.fail == "unhealthy" for fault in self._armed)

    @property
    def slowness(self) -> float:
        """How many times as long everything takes."""
        return prod(fault.factor for fault in self._armed if fault.fail == "throttle")

    def arm(self, fault: Fault) -> None:
        """Have a fault strike from now on."""
        if fault.count != 0:
            self._armed.append(fault)
            self._changed()

    def clear(self, kind: str | None = None) -> None:
        """Have nothing strike any more, or nothing of one kind."""
        self._armed = [] if kind is None else [fault for fault in self._armed if fault.fail != kind]
        self._changed()

    def draw(self, path: str) -> tuple[Fault, ...]:
        """The faults that strike a request to this path: at most one, and those that go beside it."""
        if not self._armed:
            return ()
        struck = [
            fault
            for fault in self._armed
            if fault.fail not in LASTING and path.startswith(fault.route) and self._strikes(fault)
        ]
        hard = next((fault for fault in struck if fault.fail not in BESIDE), None)
        chosen = tuple(fault for fault in struck if fault.fail in BESIDE or fault is hard)
        for fault in chosen:
            self._use(fault)
        return chosen

    def deafens(self) -> bool:
        """Whether a new connection is never heard."""
        for fault in self._armed:
            if fault.fail == "accept_hang" and self._strikes(fault):
                self._use(fault)
                return True
        return False

    def _strikes(self, fault: Fault) -> bool:
        return fault.share >= 1 or self._rng.random() < fault.share

    def _use(self, fault: Fault) -> None:
        if fault.count is None:
            return
        at = next(i for i, armed in enumerate(self._armed) if armed is fault)
        if fault.count == 1:
            del self._armed[at]
        else:
            self._armed[at] = replace(fault, count=fault.count - 1)
