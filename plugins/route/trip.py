"""What routing keeps of a call while it is under way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailrace.plugins.route.affinity import NONE, NOTHING

if TYPE_CHECKING:
    from tailrace.plugins.route.grounds import Grounds
    from tailrace.plugins.route.tempo import Tempo
    from tailrace.proxy.fleet import Worker


class Flight:
    """One attempt's part in what its worker has before it, until it has content or ends; lands once."""

    __slots__ = ("_tokens", "ahead", "flies", "load", "met", "number", "tempo")

    def __init__(self, tempo: Tempo, number: int, tokens: int, load: float) -> None:
        self.tempo = tempo
        self.number = number
        self.ahead = tempo.ahead
        """What stood before it when it was sent, and `load` what was under way there."""
        self.load = load
        self.flies = True
        self.met = False
        """Whether its worker had met the key that led there before."""
        self._tokens = tokens
        tempo.backlog += tokens
        tempo.pending += 1

    def land(self) -> int:
        """Its prompt is no work that is to be done any more; gives the tokens of which the backlog got less."""
        if not self.flies:
            return 0
        self.flies = False
        self.tempo.backlog -= self._tokens
        self.tempo.pending -= 1
        return self._tokens


class Trip:
    """One call: its size, where its session or prefix leads, its attempts."""

    __slots__ = ("aimed", "by", "first", "flights", "grounds", "nominated", "row", "second", "tokens")

    def __init__(self, tokens: int, row: int) -> None:
        self.tokens = tokens
        self.row = row
        self.aimed = False
        """Whether it is known where it should go: the keys below, as `affinity.py` has them."""
        self.first = NONE
        self.second = NONE
        self.by = NOTHING
        self.grounds: Grounds | None = None
        self.nominated: tuple[Worker | None, Worker | None] | None = None
        """Where the keys lead among more workers than are candidates."""
        self.flights: list[Flight] = []

    def flight(self, number: int) -> Flight | None:
        """The attempt with this number, also one that was vetoed."""
        for flight in self.flights:
            if flight.number == number:
                return flight
        return None
