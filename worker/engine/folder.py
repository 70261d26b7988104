"""The private folder of a launched engine, for its socket, and those that killed sidecars have left behind.

A sidecar that is killed cannot remove its folder, so the next one does. Whether one is still in use is told by a lock
on a file in it, which the system lets go with the process; a folder without that file is not judged.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PREFIX = "tailrace-engine-"
LOCK = "lock"


@contextmanager
def private_folder() -> Iterator[Path]:
    """A new folder for this user alone, gone at the end; so are those that nobody uses any more, at the beginning."""
    remove_abandoned()
    folder, lock = _locked()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def remove_abandoned() -> None:
    """Remove this user's engine folders whose sidecars are gone."""
    with contextlib.suppress(OSError):
        for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
            with contextlib.suppress(OSError):
                _remove_if_abandoned(folder)


def _locked() -> tuple[Path, int]:
    """A folder and the descriptor that holds its lock."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX))
        try:
            lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError:
            # Without locks here, nobody can tell an abandoned one: without the file it is left alone.
            (folder / LOCK).unlink(missing_ok=True)
            return folder, lock
        # Whoever came between the file and its lock has taken the folder for an abandoned one.
        if os.fstat(lock).st_nlink:
            return folder, lock
        os.close(lock)


def _remove_if_abandoned(folder: Path) -> None:
    if folder.lstat().st_uid != os.getuid():
        return
    lock = os.open(folder / LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.fstat(lock).st_uid == os.getuid():
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder)
    finally:
        os.close(lock)
