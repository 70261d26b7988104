"""Whose a folder in shared memory is, and the removal of those whose owner will not come back.

What stands there outlives its supervisor on purpose, for the next one on the same state folder; where that has been
deleted, nobody comes. Each folder holds a note with the path of its state folder and the device that this is on: a
state folder that is merely not mounted now is not deleted. A supervisor that lives has its note locked.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import shutil
import stat
import time
from pathlib import Path

from tailrace.proxy.ground import NOTE, Places, Taken

log = logging.getLogger("tailrace")
TRIES = 20
PAUSE = 0.01
_ASIDE = ".gone"
_LONGEST = 1 << 16


def move_in(places: Places) -> int:
    """Make the places and say whose they are, until the descriptor is closed; raises Taken, or another OSError.

    To be called by whoever has claimed the state folder.
    """
    for _ in range(TRIES):
        places.make()
        note = places.shared / NOTE
        try:
            fd = os.open(note, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except FileNotFoundError:
            continue  # somebody removed the folder, which had been left, in this very moment
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(fd), note.lstat()):
                os.ftruncate(fd, 0)
                os.pwrite(fd, b"%d\n%b" % (places.state.stat().st_dev, os.fsencode(places.state)), 0)
                return fd
        except (BlockingIOError, FileNotFoundError):
            time.sleep(PAUSE)
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)
    raise Taken(f"another tailrace uses {places.shared}, though not the present {places.state}: end it first")


def sweep(root: Path) -> None:
    """Remove this user's folders whose state folders are deleted; whatever is doubtful stays."""
    ours = re.compile(rf"tailrace-{os.getuid()}-[0-9a-f]{{16}}({re.escape(_ASIDE)})?")
    try:
        folders = [folder for folder in root.iterdir() if ours.fullmatch(folder.name)]
    except OSError as error:
        log.debug("%s cannot be looked through: %s", root, error)
        return
    for folder in folders:
        try:
            _remove_if_left(folder)
        except (OSError, ValueError) as error:
            log.debug("%s stays: %s", folder, error)


def _remove_if_left(folder: Path) -> None:
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        return
    note = folder / NOTE
    fd = os.open(note, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(os.fstat(fd), note.lstat()):
            return
        device, _, path = os.read(fd, _LONGEST).partition(b"\n")
        state = Path(os.fsdecode(path))
        meant = Places.of(state).shared.name == folder.name.removesuffix(_ASIDE)
        if meant and _deleted(state, int(device)):
            # Away with the name first: a supervisor that starts meanwhile finds either all or nothing.
            aside = folder.with_name(folder.name.removesuffix(_ASIDE) + _ASIDE)
            folder.rename(aside)
            shutil.rmtree(aside)
            log.info("removed %s: its state folder %s is gone", folder, state)
    finally:
        os.close(fd)


def _deleted(state: Path, device: int) -> bool:
    """Whether a path is gone from the device that it was on; raises OSError where that cannot be told."""
    for path in (state, *state.parents):
        try:
            found = path.lstat()
        except (FileNotFoundError, NotADirectoryError):
            continue
        return path != state and found.st_dev == device
    return False
