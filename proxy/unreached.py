"""Entries of a list of which the first that holds counts, behind one that holds wherever they do."""

# ruff: noqa: D102 -- the class says what they are

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol


class Conditional(Protocol):
    """An entry for calls of these classes, routes and models; none is all of them."""

    @property
    def service_class(self) -> tuple[str, ...]: ...
    @property
    def route(self) -> tuple[str, ...]: ...
    @property
    def model(self) -> tuple[str, ...]: ...


def unreached(name: str, entries: Sequence[Conditional]) -> Iterator[str]:
    """One line for each entry that no call gets to."""
    for number, entry in enumerate(entries):
        for place, before in enumerate(entries[:number]):
            if _covers(before, entry):
                why = "has no condition" if _is_free(before) else "holds wherever it would"
                yield f"{name}[{number}] is never reached: {name}[{place}], which comes first, {why}"
                break


def _covers(before: Conditional, entry: Conditional) -> bool:
    pairs = (
        (before.service_class, entry.service_class),
        (before.route, entry.route),
        (before.model, entry.model),
    )
    return all(not wide or (narrow and set(narrow) <= set(wide)) for wide, narrow in pairs)


def _is_free(entry: Conditional) -> bool:
    return not (entry.service_class or entry.route or entry.model)
