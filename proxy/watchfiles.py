"""Notices that a file was changed or replaced, by looking at it each second: no system offers more that is portable."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

Stamp = tuple[int, int, int]


class Watch:
    """Remembers how files looked."""

    def __init__(self, files: Iterable[Path]) -> None:
        self._seen = {path: stamp(path) for path in files}

    def follow(self, files: Iterable[Path]) -> None:
        """Look at these from now on; those it knows already keep what was seen of them."""
        self._seen = {path: self._seen.get(path) or stamp(path) for path in files}

    def changed(self) -> list[Path]:
        """The files that look different from the last time this was asked."""
        found = []
        for path, before in self._seen.items():
            now = stamp(path)
            if now != before:
                self._seen[path] = now
                found.append(path)
        return found


def stamp(path: Path) -> Stamp | None:
    """What changes whenever a file is written or replaced; None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size
