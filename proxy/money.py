"""Money as whole nano-units, 10**9 of them to one unit of a currency: sums are exact, and no float is involved."""

from __future__ import annotations

import re
from typing import Final

UNIT: Final = 10**9
_FORM: Final = re.compile(r"([0-9]{1,12})(?:\.([0-9]{1,9}))?")


def parse(text: str) -> int:
    """The nano-units of an amount such as `12.50`; ValueError for anything else, signs and exponents included."""
    found = _FORM.fullmatch(text)
    if found is None:
        raise ValueError("must be an amount such as 12.50, with at most nine digits behind the point")
    whole, part = found.groups()
    return int(whole) * UNIT + int((part or "").ljust(9, "0"))


def render(nano: int) -> str:
    """An amount as people write it, with as many digits as it needs."""
    whole, part = divmod(abs(nano), UNIT)
    sign = "-" if nano < 0 else ""
    return f"{sign}{whole}.{part:09d}".rstrip("0").rstrip(".")
