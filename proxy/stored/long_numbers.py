"""Numbers in JSON that come out as others when it is read and written again: integers of more than 64 bits."""

from __future__ import annotations

import re
from typing import Final

_LONG: Final = re.compile(rb"[:\[,]\s*-?\d{19}")


def has_long_number(text: bytes) -> bool:
    """Whether one may be there; text that somebody wrote may look so, too."""
    return _LONG.search(text) is not None
