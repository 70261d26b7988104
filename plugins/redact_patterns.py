"""For the `redact` plugin: the search for several patterns at once."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from tailrace.plugins.redact_prefix import analysed
from tailrace.proxy.personal import Accept


@dataclass(frozen=True, slots=True)
class Cut:
    """A match: what stands from `start` to `end` goes, and this comes in its place."""

    start: int
    end: int
    replacement: str


class Patterns:
    """Several patterns searched for together; of matches that begin together the longest counts."""

    __slots__ = ("_any", "_begun", "_each", "behind")

    def __init__(self, patterns: Iterable[tuple[str, str, Accept | None]], longest: int) -> None:
        """Compile (replacement, expression, check) for each; raises ValueError where an expression cannot be used."""
        parts = [(replacement, analysed(source, longest), accept) for replacement, source, accept in patterns]
        self._each = tuple((replacement, re.compile(part.whole), accept) for replacement, part, accept in parts)
        self._any = re.compile("|".join(part.whole for _, part, _ in parts))
        begun = [part.begun for _, part, _ in parts if part.begun]
        self._begun = re.compile("|".join([*begun, r"\Z"]))
        self.behind = max((part.behind for _, part, _ in parts), default=1)

    def decide(self, text: str, at: int, *, final: bool) -> tuple[list[Cut], int]:
        """The matches from `at` on that nothing to come can change, and the end of what is decided."""
        open_at = len(text) if final else self._open(text, at)
        if self._any.search(text, at) is None:
            return [], open_at
        cuts: list[Cut] = []
        # Each pattern's next match; it is looked for again only once a cut has gone past its beginning.
        waiting = [found for each in self._each if (found := _next(text, at, each)) is not None]
        while waiting:
            first = min(waiting, key=_start_then_longest)
            if first[0] >= open_at:
                break
            at = first[1]
            cuts.append(Cut(first[0], at, first[2][0]))
            if at > open_at:
                open_at = self._open(text, at)
            waiting = [
                found for each in waiting if (found := each if each[0] >= at else _next(text, at, each[2])) is not None
            ]
        return cuts, open_at

    def _open(self, text: str, at: int) -> int:
        found = self._begun.search(text, at)
        return found.start() if found is not None else len(text)


_Each = tuple[str, re.Pattern[str], Accept | None]
_Match = tuple[int, int, _Each]


def _start_then_longest(match: _Match) -> tuple[int, int]:
    return match[0], -match[1]


def _next(text: str, at: int, each: _Each) -> _Match | None:
    """A pattern's next match from `at` on that its check accepts: start, end and the pattern."""
    _, pattern, accept = each
    found = pattern.search(text, at)
    while found is not None and accept is not None:
        length = accept(found[0])
        if length:
            return found.start(), found.start() + length, each
        found = pattern.search(text, found.start() + 1)
    return None if found is None else (found.start(), found.end(), each)
