"""Keys in a YAML file, for those who keep their configuration in a repository: digests, no secrets.

keys:
  - {id: alice, digest: <SHA-256 of the key>, tenant: acme, models: [llama-*]}
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tailrace.plugins.auth.record import Record, Status
from tailrace.plugins.auth.ring import Change
from tailrace.proxy.config import At, ConfigError, decode_source, read, setting
from tailrace.proxy.watchfiles import Stamp, stamp


@dataclass(frozen=True, slots=True, kw_only=True)
class KeysFile:
    """The whole file."""

    keys: tuple[Record, ...] = setting(help="one entry a key")

    def check(self) -> Iterable[At]:
        """An id or a digest that stands twice."""
        seen: set[object] = set()
        for number, record in enumerate(self.keys):
            if record.id in seen or record.digest in seen:
                yield At(f"the id or the digest of '{record.id}' stands further up already", "keys", number)
            seen |= {record.id, record.digest}


class FileKeys:
    """Follows the file; a faulty state of it is refused as a whole, and the last good one stays."""

    name = "file"
    every = 0.5

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: Stamp | None = None
        self._held: dict[str, Change] = {}

    def changes(self) -> Iterator[Change]:
        """What is new, different or gone in it."""
        now = stamp(self._path)
        if now is not None and now == self._seen:
            return
        try:
            found = {record.id: Change.of(record) for record in load(self._path).keys}
        except ConfigError:
            self._seen = now  # once is enough
            raise
        yield from (change._replace(status=Status.REVOKED) for key, change in self._held.items() if key not in found)
        # Last, as a digest may have gone from one id to another.
        yield from (change for key, change in found.items() if self._held.get(key) != change)
        self._held, self._seen = found, now

    def wait(self, seconds: float) -> None:
        """Nobody tells."""

    def close(self) -> None:
        """Nothing is held open."""


def load(path: Path) -> KeysFile:
    """The file, sound; raises ConfigError."""
    return decode_source(KeysFile, read(path))
