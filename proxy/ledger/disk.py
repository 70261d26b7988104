"""How the log touches the disk: few calls, so that a test can stand in for a disk that fills up or loses its power."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


class Disk:
    """The operating system's own."""

    def make_folder(self, path: Path) -> None:
        """A folder for this user alone, durable as the files in it."""
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._sync_folder(path.parent)

    def open(self, path: Path) -> int:
        """A descriptor to write to a file that is there."""
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def write(self, fd: int, content: bytes, offset: int) -> None:
        """All of it, at a place; raises OSError, and then any part may be there."""
        view = memoryview(content)
        while view:
            done = os.pwrite(fd, view, offset)
            offset += done
            view = view[done:]

    def sync(self, fd: int) -> None:
        """What was written outlives a power cut from here on."""
        os.fdatasync(fd)

    def truncate(self, fd: int, size: int) -> None:
        """Cut a file."""
        os.ftruncate(fd, size)

    def create(self, path: Path, content: bytes) -> None:
        """A file with its content, durable as a whole or not there."""
        draft = path.with_suffix(".draft")
        with suppress(FileNotFoundError):
            draft.unlink()
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            self.write(fd, content, 0)
            os.fsync(fd)
        finally:
            os.close(fd)
        draft.rename(path)
        self._sync_folder(path.parent)

    def _sync_folder(self, folder: Path) -> None:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
