"""What one credential opens, remembered from its first use; whether it still does is seen without asking anybody."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tailrace.plugins.auth.table import KeyTable
from tailrace.proxy.identity import Identity

REMEMBERED: Final = 4096


class Grant:
    """A credential that was good. `table` is None for what is not in the table of keys."""

    __slots__ = ("digest", "identity", "restricted", "slot", "table", "until", "word", "words")

    def __init__(
        self,
        identity: Identity,
        digest: bytes,
        until: float,
        table: KeyTable | None = None,
        slot: int = 0,
        word: int = 0,
    ) -> None:
        self.identity = identity
        self.digest = digest
        self.until = until
        self.table = table
        self.slot = slot
        self.word = word
        self.words: Sequence[int] = (0,) if table is None else table.words
        self.restricted = identity.models is not None


class Grants:
    """The last few thousand by digest."""

    __slots__ = ("_held", "get")

    def __init__(self) -> None:
        self._held: dict[bytes, Grant] = {}
        self.get = self._held.get

    def __len__(self) -> int:
        return len(self._held)

    def keep(self, grant: Grant) -> None:
        """Remember one; the oldest goes where there are too many."""
        if len(self._held) >= REMEMBERED:
            del self._held[next(iter(self._held))]
        self._held[grant.digest] = grant

    def forget(self, digest: bytes) -> None:
        """Let go of one."""
        self._held.pop(digest, None)

    def clear(self) -> None:
        """Let go of all."""
        self._held.clear()
