"""What looks like a secret or a person's data, by name: a regular expression, and for some a check of what it finds."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal

Named = Literal["email", "credit_card", "us_ssn", "iban", "api_key", "ipv4", "phone"]
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


class Finder:
    """Looks for several of the patterns at once."""

    __slots__ = ("_each",)

    def __init__(self, names: Sequence[Named]) -> None:
        self._each: Final = tuple((re.compile(BUILT_IN[name][0]), BUILT_IN[name][1]) for name in names)

    def finds(self, text: str) -> bool:
        """Whether there is anything of the kind in a text."""
        for pattern, accept in self._each:
            for found in pattern.finditer(text):
                if accept is None or accept(found[0]):
                    return True
        return False
