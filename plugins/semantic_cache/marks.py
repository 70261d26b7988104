"""What of a question has to be in another one, too, if one answer is to do for both: numbers, names, units and more."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from sys import intern
from typing import Final

from tailrace.plugins.semantic_cache.vocabulary import (
    ASKED,
    BETWEEN,
    DATES,
    FRAMING,
    MANNER,
    NEGATIONS,
    OPPOSITES,
    ROMAN,
    SAME,
    UNITS,
    WORDED,
    stem,
)

_TOKEN: Final = re.compile(r"[^\W_]+(?:['.,:/][^\W_]+)*[+#]*|[$€£¥%]|[.?!:\n\"]")
_MEASURED: Final = re.compile(r"(\d[\d.,]*)([^\W\d_]+)")
_ENDS: Final = frozenset('.?!:\n"')
_TIMES: Final = frozenset(("time", "day", "date", "year", "month", "hour"))
_WHICH: Final = frozenset(("what", "which"))
_SYMBOLS: Final = frozenset("$€£¥")


@dataclass(frozen=True, slots=True)
class Marks:
    """Of one question. A word stands here as all its forms and synonyms do; `names` are those of `words` written so."""

    numbers: tuple[str, ...]
    measures: frozenset[tuple[str, str]]
    units: frozenset[str]
    dates: frozenset[str]
    negations: int
    opposites: frozenset[str]
    asked: str
    names: frozenset[str]
    words: tuple[str, ...]
    order: tuple[str, ...]
    """The words, numbers and units, and those that say which of two things is which."""


def marks_of(text: str) -> Marks:
    """Read a question."""
    reader = _Reader()
    for token, raised in _tokens(text):
        reader.read(token, raised)
    return reader.marks()


def _tokens(text: str) -> Iterator[tuple[str, bool]]:
    """Each word or sign, and whether it is written as names are."""
    begins = True
    for found in _TOKEN.findall(text.replace("\u2019", "'")):
        if found in _ENDS:
            begins = found != '"'
            continue
        parts = found.split("/") if "/" in found and not _has_digit(found) and found.lower() not in UNITS else [found]
        for part in parts:
            capital = not part.islower() and part[:1].isalpha()
            yield part, capital and (not begins or not part[1:].islower()) and part not in ("I", "A")
            begins = False


def _has_digit(token: str) -> bool:
    return any(character.isdigit() for character in token)


class _Reader:
    """Takes the words of a question one after the other."""

    def __init__(self) -> None:
        self._numbers: list[str] = []
        self._measures: set[tuple[str, str]] = set()
        self._units: set[str] = set()
        self._dates: set[str] = set()
        self._negations = 0
        self._opposites: set[str] = set()
        self._asked = ""
        self._names: set[str] = set()
        self._words: dict[str, None] = {}
        self._order: dict[str, None] = {}
        self._before = ""
        self._number_before = ""

    def read(self, token: str, raised: bool) -> None:
        """The next word."""
        number, self._number_before = self._number_before, ""
        if _has_digit(token):
            measured = _MEASURED.fullmatch(token)
            unit = None if measured is None else UNITS.get(stem(measured[2].lower())) or DATES.get(measured[2].lower())
            if measured is None or unit is None:
                self._number(token.lower())
            else:
                self._number(measured[1])
                self._unit(unit, self._number_before)
        elif token in ROMAN:
            self._number(ROMAN[token])
        else:
            self._word(token, token.lower(), raised, number)
        self._before = token.lower()

    def _number(self, written: str) -> None:
        plain = written.replace(",", "").rstrip(".")
        self._numbers.append(plain)
        self._order.setdefault(plain)
        self._number_before = plain
        if self._before in _SYMBOLS:
            self._measures.add((plain, UNITS[self._before]))

    def _unit(self, unit: str, number: str) -> None:
        self._units.add(unit)
        self._order.setdefault(unit)
        if number:
            self._measures.add((number, unit))

    def _word(self, token: str, word: str, raised: bool, number: str) -> None:
        root = stem(word)
        self._ask(word, root)
        if word in NEGATIONS or word.endswith("n't") or word == "non":
            self._negations += 1
            return
        if word in WORDED:
            self._number(WORDED[word])
            return
        if (root in DATES and (word != "am" or number)) or (raised and word == "may"):
            self._dates.add(DATES.get(root, word))
        elif self._before in _WHICH and root in _TIMES:
            pass  # which is `when`
        elif root in UNITS and (len(word) > 1 or number or not word.isalpha()):
            self._unit(UNITS[root], number)
        elif root in OPPOSITES:
            self._opposites.add(OPPOSITES[root])
        elif not raised and word in BETWEEN:
            self._order.setdefault(word)
        elif not raised and self._before == "how" and word in MANNER:
            pass  # it is said by what is asked
        elif raised or word not in FRAMING:
            meant = intern(SAME.get(root, root))
            if raised:
                self._names.add(meant)
            self._words.setdefault(meant)
            self._order.setdefault(meant)

    def _ask(self, word: str, root: str) -> None:
        """What kind of answer is wanted; the first word that says it counts."""
        if self._asked in ("", "how"):
            if word in ASKED:
                self._asked = self._asked or ASKED[word]
            elif self._before in _WHICH and root in _TIMES:
                self._asked = "when"
            elif word == "how":
                self._asked = "how"
            elif self._before == "how" and word in MANNER:
                self._asked = f"how {word}"
            elif root == "happen":
                self._asked = "happens"

    def marks(self) -> Marks:
        """All that was read."""
        return Marks(
            tuple(self._numbers),
            frozenset(self._measures),
            frozenset(self._units),
            frozenset(self._dates),
            self._negations,
            frozenset(self._opposites),
            self._asked,
            frozenset(self._names),
            tuple(self._words),
            tuple(self._order),
        )
