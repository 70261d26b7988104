"""A temporary folder, removed when its process ends or, where that was killed, when the next of its kind begins."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

LOCK: Final = "lock"
YOUNG: Final = 60.0
"""Seconds for which a folder without its lock may be one that is just being made."""


@contextmanager
def scratch(prefix: str) -> Iterator[Path]:
    """A folder of this process alone, after those were removed whose process is gone."""
    for folder in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        with contextlib.suppress(OSError):
            _remove_if_dead(folder)
    with tempfile.TemporaryDirectory(prefix=prefix) as name:
        fd = os.open(f"{name}/making", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            # Whoever sees it under this name finds it locked.
            Path(f"{name}/making").rename(f"{name}/{LOCK}")
            yield Path(name)
        finally:
            os.close(fd)


def _remove_if_dead(folder: Path) -> None:
    found = folder.lstat()
    if folder.is_symlink() or not folder.is_dir() or found.st_uid != os.getuid():
        return
    try:
        fd = os.open(folder / LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        if time.time() - found.st_mtime > YOUNG:
            shutil.rmtree(folder)
        return
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder)
    finally:
        os.close(fd)
