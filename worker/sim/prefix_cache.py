"""Which prompt blocks the engine has computed before: what `cached_tokens` and the prefix metrics report."""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Sequence


class PrefixCache:
    """Hashes of full blocks, each hash standing for all tokens up to its end; the least recently used goes first."""

    def __init__(self, block_size: int, blocks: int) -> None:
        self._block_size = block_size
        self._capacity = blocks
        self._known: OrderedDict[int, None] = OrderedDict()

    def match(self, ids: Sequence[int], salt: int) -> int:
        """How many leading tokens need no prefill; at least the last one always does."""
        hits: list[int] = []
        for key in self._keys(ids[:-1], salt):
            if key not in self._known:
                break
            hits.append(key)
        self._touch(hits)
        return len(hits) * self._block_size

    def insert(self, ids: Sequence[int], salt: int) -> None:
        """Remember the full blocks of what was computed."""
        self._touch(self._keys(ids, salt))
        while len(self._known) > self._capacity:
            self._known.popitem(last=False)

    def _touch(self, keys: list[int]) -> None:
        """Mark blocks as used just now, the first one last: it outlives those that are worth nothing without it."""
        for key in reversed(keys):
            self._known[key] = None
            self._known.move_to_end(key)

    def _keys(self, ids: Sequence[int], salt: int) -> list[int]:
        packed = array("I", ids).tobytes()
        step = 4 * self._block_size
        keys: list[int] = []
        for end in range(step, len(packed) + 1, step):
            salt = hash((salt, packed[end - step : end]))
            keys.append(salt)
        return keys
