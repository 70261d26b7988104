"""The folder of an engine's socket: gone with its sidecar or, where that was killed, with the next one's start."""

import fcntl
import os
import signal
import subprocess
import sys
import tempfile

import pytest
from tailrace.worker.engine import folder
from tailrace.worker.engine.folder import LOCK, PREFIX, private_folder

HOLD = """
from tailrace.worker.engine.folder import private_folder
with private_folder() as folder:
    print(folder, flush=True)
    input()
"""


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def folders(place) -> list[str]:
    return sorted(str(found) for found in place.iterdir())


def test_a_folder_is_private_and_goes_with_all_that_is_in_it(place):
    with private_folder() as here:
        assert folders(place) == [str(here)]
        assert here.stat().st_mode & 0o777 == 0o700
        (here / "engine.sock").touch()
    assert folders(place) == []


def test_the_folder_of_a_killed_sidecar_goes_with_the_next_start_and_no_earlier(place):
    with subprocess.Popen(
        [sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        left = other.stdout.readline().strip()
        with private_folder() as here:
            assert folders(place) == sorted([left, str(here)])
        other.send_signal(signal.SIGKILL)
        other.wait()
        assert folders(place) == [left]
        with private_folder() as here:
            assert folders(place) == [str(here)]


def test_what_cannot_be_judged_is_left_alone(place):
    unmarked = place / f"{PREFIX}of-an-earlier-release"
    unmarked.mkdir()
    (unmarked / "engine.sock").touch()
    file = place / f"{PREFIX}file"
    file.touch()
    other = place / "somebody-elses"
    other.mkdir()
    (other / LOCK).touch()
    linked = place / f"{PREFIX}link"
    linked.symlink_to(other)
    with private_folder():
        pass
    assert folders(place) == sorted(map(str, (unmarked, file, other, linked)))
    assert (other / LOCK).exists()


def test_a_folder_that_was_removed_before_it_was_locked_is_made_anew(place, monkeypatch):
    taken = []
    flock = fcntl.flock

    def lock(fd: int, how: int) -> None:
        if not taken:
            taken.extend(folders(place))
            folder.remove_abandoned()
        flock(fd, how)

    monkeypatch.setattr(fcntl, "flock", lock)
    with private_folder() as here:
        assert len(taken) == 1
        assert str(here) not in taken
        assert folders(place) == [str(here)]
    assert not os.listdir(place)
