"""What processes, their host's authority and the store say to one another of a counter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Counter:
    """What is counted: one limit of one key, tenant, model or tag, under a name that is only its own."""

    name: str
    limit: int
    per: str
    zone: str = "UTC"
    what: str = "requests"
    whom: tuple[str, str] = ("", "")
    """Whose use is added up: `("key", "k1")`, as the ledger has it."""

    @property
    def remembered(self) -> bool:
        """Whether a ledger's sums are to stand in for what was forgotten of it: other windows soon begin anew."""
        return self.what == "money" or self.per == "total"


@dataclass(frozen=True, slots=True)
class Granted:
    """A lease, new or with more in it than before: its slot, the moments at which its window ends, what is left."""

    at: int
    ends: float
    resets: int
    left: int


@dataclass(frozen=True, slots=True)
class Exhausted:
    """The limit is reached; `frees` says whether calls that end now make room before the window is over."""

    ends: float
    resets: int
    left: int
    frees: bool


@dataclass(frozen=True, slots=True)
class Short:
    """The part of the limit that this host has is spent: the store may have more."""

    wanted: int
    least: int


Told = list[float]
"""An answer on the wire: what it is, then its fields."""
_GRANTED: Final = 0
_EXHAUSTED: Final = 1
_UNKNOWN: Final = 2


def told(answer: Granted | Exhausted | None) -> Told:
    """An answer as it goes to a process; None where nobody knows."""
    if isinstance(answer, Granted):
        return [_GRANTED, answer.at, answer.ends, answer.resets, answer.left]
    if isinstance(answer, Exhausted):
        return [_EXHAUSTED, answer.ends, answer.resets, answer.left, answer.frees]
    return [_UNKNOWN]


def heard(answer: Told) -> Granted | Exhausted | None:
    """The same as a process reads it."""
    if answer[0] == _GRANTED:
        _, at, ends, resets, left = answer
        return Granted(int(at), ends, int(resets), int(left))
    if answer[0] == _EXHAUSTED:
        _, ends, resets, left, frees = answer
        return Exhausted(ends, int(resets), int(left), bool(frees))
    return None
