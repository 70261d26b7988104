"""The end of a good answer: plugins are asked before its last bytes leave, and may hold them back for a while."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tailrace.proxy.fault import FAILURES
from tailrace.proxy.mishap import go_on_without

if TYPE_CHECKING:
    from tailrace.proxy.call import Call
    from tailrace.proxy.outcome import Outcome


class LastBytes:
    """Those of one answer; `then` is called when the last plugin that held them has let go."""

    __slots__ = ("_call", "_holders", "_then")

    def __init__(self, call: Call, then: Callable[[], None]) -> None:
        self._call = call
        self._holders = 0
        self._then = then

    def held(self, outcome: Outcome) -> bool:
        """Ask every plugin, once; whether one holds them. Raises what refuses the answer altogether."""
        call = self._call
        harvest = call.harvest
        if harvest is not None:
            call.usage = harvest.usage()
        outcome.usage = call.usage
        self._holders = 1
        for hook in call.chain.pipeline.on_ending:
            self._holders += 1
            try:
                if hook(call, outcome, self._release):
                    continue
            except FAILURES as error:
                go_on_without(call, call.chain.pipeline.owners[hook], "on_ending", error)
            self._holders -= 1
        self._holders -= 1
        return self._holders > 0

    def _release(self) -> None:
        self._holders -= 1
        if not self._holders and self._call.outcome is None:
            self._then()
