"""Where answers come from that no worker made for the call that gets them."""

from __future__ import annotations

from typing import Final

KEPT: Final = "cache"
FOLLOWED: Final = "follow"
OUT_OF_DATE: Final = "stale"
ALIKE: Final = "semantic_cache"
SECOND_HAND: Final = frozenset({KEPT, FOLLOWED, OUT_OF_DATE, ALIKE})
"""They were paid for when they were made."""
