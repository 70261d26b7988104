"""The rules that keep an answer from a question which only looks like the one that it was given to.

Each says whether two questions agree in one respect. Embeddings see little of it: to them `the limit for 3 days` is
close to `the limit for 5 days`, and `with` to `without`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal

from tailrace.plugins.semantic_cache.marks import Marks

Guard = Literal["numbers", "units", "dates", "negation", "opposites", "asked", "names", "direction", "words"]


def _numbers(one: Marks, other: Marks) -> bool:
    return one.numbers == other.numbers


def _units(one: Marks, other: Marks) -> bool:
    return one.units == other.units and one.measures == other.measures


def _dates(one: Marks, other: Marks) -> bool:
    return one.dates == other.dates


def _negation(one: Marks, other: Marks) -> bool:
    return one.negations == other.negations


def _opposites(one: Marks, other: Marks) -> bool:
    return one.opposites == other.opposites


def _asked(one: Marks, other: Marks) -> bool:
    return not one.asked or not other.asked or one.asked == other.asked


def _names(one: Marks, other: Marks) -> bool:
    # A name may be written small in the other question.
    return one.names.issubset(other.words) and other.names.issubset(one.words)


def _direction(one: Marks, other: Marks) -> bool:
    """No three words of both stand in reverse: `Java faster Python`, `miles to kilometers`."""
    place = {word: number for number, word in enumerate(other.order)}
    places = [place[word] for word in one.order if word in place]
    return not _falls_twice(places)


def _falls_twice(places: Sequence[int]) -> bool:
    """Whether there are three of which each later one is smaller."""
    first = second = -1
    for each in places:
        if each < second:
            return True
        if each < first:
            second = max(second, each)
        first = max(first, each)
    return False


def _words(one: Marks, other: Marks) -> bool:
    return set(one.words) == set(other.words)


GUARDS: Final[Mapping[Guard, Callable[[Marks, Marks], bool]]] = {
    "numbers": _numbers,
    "units": _units,
    "dates": _dates,
    "negation": _negation,
    "opposites": _opposites,
    "asked": _asked,
    "names": _names,
    "direction": _direction,
    "words": _words,
}


def objection(one: Marks, other: Marks, guards: Sequence[Guard]) -> Guard | None:
    """The first guard by which two questions are not the same; None where all agree."""
    for guard in guards:
        if not GUARDS[guard](one, other):
            return guard
    return None
