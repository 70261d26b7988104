"""What a call goes through while a plugin lets it wait in a queue."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tailrace.proxy.fault import FAILURES, STEP_FAILED
from tailrace.proxy.mishap import go_on_without

if TYPE_CHECKING:
    from tailrace.proxy.call import Call


class Waiting:
    """The context of one wait: the plugin's budget stands still, and what refuses the call afterwards does so here."""

    __slots__ = ("_began", "_call", "_left")

    def __init__(self, call: Call) -> None:
        self._call = call
        self._began = 0
        self._left: float | None = None

    async def __aenter__(self) -> None:
        self._began = time.monotonic_ns()
        budget = self._call.budget
        if budget is not None and (due := budget.when()) is not None:
            self._left = due - self._call.client.loop.time()
            budget.reschedule(None)

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        call = self._call
        call.waited_ns += time.monotonic_ns() - self._began
        if self._left is not None and call.budget is not None:
            call.budget.reschedule(call.client.loop.time() + self._left)
        if kind is None:
            recheck(call)


def recheck(call: Call) -> None:
    """Ask plugins whether what admitted a call still holds after its wait; raises what refuses it."""
    pipeline = call.chain.pipeline
    for look in pipeline.recheck:
        try:
            look(call)
        except FAILURES as error:
            go_on_without(call, pipeline.owners[look], "recheck", error, STEP_FAILED)
