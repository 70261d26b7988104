"""Temporary folders: removed with their process, or by the next one."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from tailrace.proxy.scratch import YOUNG, scratch


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_it_is_there_until_it_is_left(place: Path) -> None:
    with scratch("some-") as folder:
        assert folder.parent == place
        (folder / "file").touch()
    assert list(place.iterdir()) == []


def test_the_folder_of_a_dead_process_is_removed_and_that_of_a_living_one_stays(place: Path) -> None:
    dead = place / "some-dead"
    dead.mkdir()
    (dead / "lock").touch()
    (dead / "worker.sock").touch()
    with scratch("some-") as living:
        assert not dead.exists()
        with scratch("some-") as other:
            assert other != living
            assert living.exists()


def test_nothing_else_is_removed(place: Path) -> None:
    for name in ("some-young", "other-dead", "elsewhere"):
        (place / name).mkdir()
    (place / "some-file").touch()
    (place / "other-dead/lock").touch()
    (place / "elsewhere/lock").touch()
    (place / "some-link").symlink_to(place / "elsewhere")
    before = sorted(place.iterdir())
    with scratch("some-"):
        pass
    assert sorted(place.iterdir()) == before
    assert (place / "elsewhere/lock").exists()
    old = (place / "some-young").stat().st_mtime - YOUNG - 1
    os.utime(place / "some-young", (old, old))
    with scratch("some-"):
        assert not (place / "some-young").exists()
