"""Which budget a call has: found once for calls of one kind, and less where the client wants less."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from tailrace.plugins.deadline.settings import BudgetSettings
from tailrace.proxy.budget import FIRST_HEADER, TOTAL_HEADER, Budget, milliseconds
from tailrace.proxy.fault import Reject
from tailrace.proxy.service_class import ServiceClass

if TYPE_CHECKING:
    from tailrace.proxy.call import Call
    from tailrace.proxy.head import RequestHead

_S: Final = 1_000_000_000
_REMEMBERED: Final = 4096


class Lengths:
    """A budget as it is written, in nanoseconds; 0 where nothing is bounded."""

    __slots__ = ("first", "model", "queue", "reserve", "total")

    def __init__(self, settings: BudgetSettings | None) -> None:
        self.total = self.first = self.queue = self.model = self.reserve = 0
        if settings is not None:
            stages = settings.stages
            self.total, self.first = int((settings.total or 0) * _S), int((settings.ttft or 0) * _S)
            self.queue, self.model = int((stages.queue or 0) * _S), int((stages.model or 0) * _S)
            self.reserve = int(stages.reserve * _S)


_NONE: Final = Lengths(None)


class Allotted(Budget):
    """A budget that is watched; `alarm` is where `Alarms` has its call, 0 for nowhere."""

    __slots__ = ("alarm",)

    def __init__(self, ends_ns: int, first_ns: int, queue_ns: int, model_ns: int, reserve_ns: int) -> None:
        super().__init__(ends_ns, first_ns, queue_ns, model_ns, reserve_ns)
        self.alarm = 0


class Budgets:
    """All that are written; the first that holds for a call is its own."""

    def __init__(self, settings: Sequence[BudgetSettings]) -> None:
        self._written = tuple([(each, Lengths(each)) for each in settings])
        self._found: dict[tuple[str, str, str], Lengths] = {}
        self._every = _of_every_call(self._written)

    def of(self, call: Call) -> Allotted | None:
        """The budget of a call, None where it has as long as it takes; raises Reject(400) for what is no budget."""
        lengths = self._every or self._lengths_of(call)
        total, first = lengths.total, lengths.first
        folded = call.head.folded
        asked = folded.get(TOTAL_HEADER)
        if asked is not None:
            total = _less(total, asked, TOTAL_HEADER, call.head)
        asked = folded.get(FIRST_HEADER)
        if asked is not None:
            first = _less(first, asked, FIRST_HEADER, call.head)
        model = lengths.model
        if not call.stream:
            first = model = 0
        if not (total or first or model or lengths.queue):
            return None
        began = call.started_ns
        return Allotted(
            began + total if total else 0, began + first if first else 0, lengths.queue, model, lengths.reserve
        )

    def _lengths_of(self, call: Call) -> Lengths:
        fact = call.fact(ServiceClass)
        name = "" if fact is None else fact.name
        entry = call.entry
        kind = (name, call.route.name, "" if entry is None else entry.name)
        found = self._found.get(kind)
        if found is None:
            found = next((lengths for each, lengths in self._written if each.holds(kind[0], kind[1], kind[2])), _NONE)
            if len(self._found) >= _REMEMBERED:
                self._found.clear()
            self._found[kind] = found
        return found


def _of_every_call(written: Sequence[tuple[BudgetSettings, Lengths]]) -> Lengths | None:
    """What holds whatever a call is: nothing else is looked at then."""
    if not written:
        return _NONE
    first, lengths = written[0]
    return None if first.service_class or first.route or first.model else lengths


def _less(given: int, asked: bytes, name: bytes, head: RequestHead) -> int:
    """A client can only have less than it is given, if that is anything; of several wishes the least counts."""
    length = milliseconds(asked)
    if len(head.headers) > len(head.folded):
        for each in head.all(name):
            other = milliseconds(each)
            length = length and other and min(length, other)
    if not length:
        text = f"'{name.decode()}' must be a whole number of milliseconds, 1 or more."
        raise Reject(400, "invalid_request_error", text, kind="bad_request")
    return min(given, length) if given else length
