"""A plugin that fails in one phase of choice, and one whose taps do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tailrace.proxy.call import Call
from tailrace.proxy.fault import Reject
from tailrace.proxy.head import Head
from tailrace.proxy.plugin import Plugin


@dataclass(frozen=True)
class Broken:
    phase: str
    reject: bool = False
    error: str = "ValueError"


class Refusal(Reject):
    """A refusal of a plugin's own kind."""

    def __init__(self) -> None:
        super().__init__(418, "teapot", "no coffee here")


RAISED: dict[str, Callable[[], BaseException]] = {
    "ValueError": lambda: ValueError("broken"),
    "CancelledError": asyncio.CancelledError,
    "GeneratorExit": GeneratorExit,
    "Reject": lambda: Reject(418, "teapot", "no coffee here"),
    "Refusal": Refusal,
}


class Fails(Plugin[Broken]):
    """Raises in the phase that its configuration names; the others do nothing."""

    Config = Broken

    def _at(self, phase: str) -> None:
        if self.config.phase == phase:
            raise RAISED["Reject" if self.config.reject else self.config.error]()

    def on_open(self, call: Call) -> None:
        self._at("on_open")

    async def on_request(self, call: Call) -> None:
        self._at("on_request")

    def score_workers(self, call: Call, candidates: Any) -> Any:
        self._at("score_workers")
        return [1.0] * len(candidates)

    def on_chosen(self, call: Call, attempt: Any) -> bool:
        self._at("on_chosen")
        return True

    def patience(self, call: Call, tries: Any) -> float | None:
        self._at("patience")
        return 0.01

    def next_target(self, call: Call, tries: Any, fault: Any) -> None:
        self._at("next_target")

    def allow(self, call: Call, tries: Any, why: str) -> bool:
        self._at("allow")
        return False

    def judge(self, call: Call, attempt: Any, prefix: Any) -> Any:
        self._at("judge")
        from tailrace.proxy.plugin import Verdict

        return Verdict.COMMIT

    def on_attempt_end(self, call: Call, attempt: Any, end: Any) -> None:
        self._at("on_attempt_end")

    def on_answer(self, call: Call, head: Head) -> None:
        self._at("on_answer")

    def on_stream(self, call: Call, head: Head) -> Any:
        self._at("on_stream")
        return FailingTap(self) if self.config.phase.startswith("tap.") else None

    def on_complete(self, call: Call, outcome: Any) -> None:
        self._at("on_complete")


class FailingTap:
    """An edit that fails in `feed` at some content, in `finish` or in `body`."""

    def __init__(self, plugin: Fails) -> None:
        self._plugin = plugin

    def feed(self, event: Any) -> tuple[Any, ...]:
        if b"two" in event.raw:
            self._plugin._at("tap.feed")
        if b"one" in event.raw:
            self._plugin._at("tap.first")
        return (event,)

    def finish(self, outcome: Any) -> tuple[Any, ...]:
        self._plugin._at("tap.finish")
        return ()

    def body(self, data: bytes) -> bytes:
        self._plugin._at("tap.body")
        return data
