"""For the `redact` plugin: the patterns that it knows by name, and the search for several at once."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from tailrace.plugins.redact_prefix import analysed

Accept = Callable[[str], int]
"""Of a text that has the form: how much of its beginning is a match, 0 where none is."""

_DOUBLED = {str(digit): digit * 2 - (9 if digit > 4 else 0) for digit in range(10)}


def luhn(text: str) -> int:
    """The longest beginning that is a card number by its check digit."""
    return _longest(text, 13, lambda digits: digits.isdigit() and _checksum(digits) % 10 == 0)


def _checksum(digits: str) -> int:
    return sum(map(int, digits[-1::-2])) + sum(map(_DOUBLED.__getitem__, digits[-2::-2]))


def mod97(text: str) -> int:
    """The longest beginning that is an account number by its check digits."""
    return _longest(text, 15, lambda plain: int("".join(str(int(c, 36)) for c in plain[4:] + plain[:4])) % 97 == 1)


def _longest(text: str, least: int, valid: Callable[[str], bool]) -> int:
    """The longest valid beginning that ends where a group of characters does."""
    end = len(text)
    while end > 0:
        plain = text[:end].replace(" ", "").replace("-", "")
        if len(plain) < least:
            return 0
        if valid(plain):
            return end
        end = max(text.rfind(" ", 0, end), text.rfind("-", 0, end))
    return 0


_OCTET = r"(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_KEYS = (
    r"sk-[A-Za-z0-9_-]{16,200}",  # OpenAI, Anthropic and many that follow them
    r"gh[pousr]_[A-Za-z0-9]{36,200}",
    r"github_pat_[A-Za-z0-9_]{22,200}",
    r"glpat-[A-Za-z0-9_-]{20,64}",
    r"(?:AKIA|ASIA)[0-9A-Z]{16}",
    r"AIza[0-9A-Za-z_-]{35}",
    r"xox[abeprs]-[A-Za-z0-9-]{10,200}",
    r"hf_[A-Za-z0-9]{30,64}",
)

BUILT_IN: Mapping[str, tuple[str, Accept | None]] = {
    "email": (r"(?<![\w.%+-])[\w.%+-]{1,64}@(?:[\w-]{1,40}\.){1,4}[^\W\d_]{2,24}", None),
    "credit_card": (
        r"(?<![0-9])(?:[2-6][0-9]{12,18}|[2-6][0-9]{3}(?:[ -][0-9]{4}){3}(?:[ -]?[0-9]{1,3})?"
        r"|3[0-9]{3}[ -][0-9]{6}[ -][0-9]{4,5})(?![0-9])",
        luhn,
    ),
    "us_ssn": (r"(?<![0-9-])(?!000|666|9)[0-9]{3}[ -](?!00)[0-9]{2}[ -](?!0000)[0-9]{4}(?![0-9])", None),
    "iban": (r"(?<![A-Za-z0-9])[A-Z]{2}[0-9]{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?(?![A-Za-z0-9])", mod97),
    "api_key": (rf"(?<![A-Za-z0-9])(?:{'|'.join(_KEYS)})", None),
    "ipv4": (rf"(?<![0-9.])(?:{_OCTET}\.){{3}}{_OCTET}(?![0-9]|\.[0-9])", None),
    "phone": (
        r"(?<![\w+])(?:\+[0-9]{1,3}[ .-]?(?:\([0-9]{1,4}\)[ .-]?)?[0-9]{2,4}(?:[ .-]?[0-9]{2,4}){1,4}"
        r"|(?:1[ .-])?(?:\([0-9]{3}\)[ .-]?|[0-9]{3}[ .-])[0-9]{3}[ .-][0-9]{4})(?![0-9])",
        None,
    ),
}


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
