"""A desk that tests play with: calls with names, classes, and moments in seconds."""

from __future__ import annotations

from tailrace.plugins.admission.desk import Desk
from tailrace.plugins.admission.line import Waiter
from tailrace.plugins.admission.settings import ClassSettings

S = 1_000_000_000
FAST = ClassSettings(name="fast", reserve=0.5, promote=5.0, preempts=True)
SLOW = ClassSettings(name="slow", promote=30.0)


class Call:
    """A call by its name."""

    def __init__(self, name: str) -> None:
        self.name = name


class Played:
    """A desk and the calls that have places, by name."""

    def __init__(self, capacity: int, *classes: ClassSettings) -> None:
        self.desk = Desk(classes or (FAST, SLOW), capacity)
        self.calls: dict[str, Call] = {}

    def come(self, name: str, of: str, at: float = 0.0, tenant: str = "", due: float = 1000) -> bool:
        call = self.calls[name] = Call(name)
        [rank] = [rank for rank in self.desk.ranks if rank.settings.name == of]
        if self.desk.enter(call, rank, int(at * S)) is not None:
            return True
        self.desk.queue(Waiter(call, tenant, int(due * S), int(at * S), lambda: None), rank)
        return False

    def go(self, *names: str, at: float = 0.0) -> None:
        for name in names:
            self.desk.leave(self.calls[name], int(at * S))

    @property
    def inside(self) -> list[str]:
        return sorted(call.name for rank in self.desk.ranks for call in rank.inside)
