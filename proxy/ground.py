"""What one plugin shares with its likes in the other processes of this host, and with what runs once on it."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import stat
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Ask = Callable[[str, str, dict[str, Any]], Awaitable[Any]]
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - the folder made in it belongs to this user alone, which is checked
NOTE = "state-folder"
"""The file in a shared folder that says whose it is."""

SYSTEM_STATE = Path("/var/lib/tailrace")


@dataclass(frozen=True, slots=True)
class Places:
    """Where a configuration keeps what must outlive its processes: `state` a power cut, `shared` only them."""

    state: Path
    shared: Path

    @classmethod
    def of(cls, state: Path) -> Places:
        """The places that belong to a state folder; creates nothing."""
        state = Path(os.path.realpath(state))
        mark = hashlib.sha256(os.fsencode(state)).hexdigest()[:16]
        root = SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK | os.X_OK) else state
        return cls(state, root / f"tailrace-{os.getuid()}-{mark}")

    def make(self) -> None:
        """Create both for this user alone; raises OSError where they are not, or are somebody else's."""
        for folder in (self.state, self.shared):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = self.shared.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
            raise PermissionError(f"{self.shared} is not a folder that belongs to this user alone")

    def leave(self) -> None:
        """Remove `shared` if nothing is left in it but empty folders; a file in it is meant for who comes next."""
        for folder, _, _ in os.walk(self.shared, topdown=False):
            with contextlib.suppress(OSError):
                if Path(folder) == self.shared and list(self.shared.iterdir()) == [self.shared / NOTE]:
                    (self.shared / NOTE).unlink()
                Path(folder).rmdir()


def own_folder() -> Path:
    """The state folder where the configuration names none."""
    given = os.environ.get("STATE_DIRECTORY", "").partition(":")[0]
    if given:
        return Path(given)
    try:
        return Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser() / "tailrace"
    except RuntimeError:
        # A user whom no list of users knows, and without HOME.
        return SYSTEM_STATE


def folder_fault(folder: Path) -> str | None:
    """Why a folder cannot be made or written by this user; changes nothing."""
    there = folder
    while not os.path.lexists(there) and there != there.parent:
        there = there.parent
    if not os.path.isdir(there):  # noqa: PTH112 - which may raise
        return f"{there} is no folder"
    if not os.access(there, os.W_OK | os.X_OK):
        return f"{there} cannot be written by this user" if there == folder else f"it cannot be made in {there}"
    return None


def _lock_in(folder: Path) -> int:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


class Taken(OSError):  # noqa: N818 - a fact about the folder
    """Another supervisor uses the state folder."""


def claim(places: Places) -> int:
    """Be the one that uses a state folder, made where it is missing, until the descriptor is closed; raises Taken."""
    try:
        fd = _lock_in(places.state)
    except OSError as error:
        told = f"the state folder {places.state} cannot be used: {error.strerror or error}; `state` names another"
        raise OSError(told) from error
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        raise Taken(f"another tailrace uses the state folder {places.state}: give each its own `state`") from None
    return fd


class Ground:
    """One plugin's view of it, in one process; `seat` is the process's number among those of this host."""

    def __init__(self, name: str, places: Places, seat: int, ask: Ask) -> None:
        self.name = name
        self.places = places
        self.seat = seat
        self._ask = ask

    async def ask(self, what: str, **fields: Any) -> Any:
        """Ask the plugin's own part that runs once on this host; raises Refused, or Gone where nobody runs it now."""
        return await self._ask(self.name, what, fields)
