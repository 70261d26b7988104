"""Folders in shared memory whose supervisors will not come back are removed, and no others."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes import gateway, run, yaml_for
from tailrace.proxy.ground import NOTE, Places, Taken, claim
from tailrace.proxy.leftovers import move_in, sweep


def placed(tmp_path: Path, name: str = "state") -> Places:
    """Places whose shared folder stands below the test's own folder."""
    root, state = tmp_path / "shm", tmp_path / name
    root.mkdir(exist_ok=True)
    return Places(state, root / Places.of(state).shared.name)


def left(places: Places) -> Path:
    """A shared folder with something in it, whose supervisor has ended."""
    fd = move_in(places)
    (places.shared / "deep").mkdir()
    (places.shared / "deep" / "ring").write_text("spent")
    os.close(fd)
    return places.shared


def test_a_folder_goes_once_its_state_folder_is_deleted(tmp_path: Path) -> None:
    gone, stays = placed(tmp_path, "one"), placed(tmp_path, "two")
    for places in (gone, stays):
        left(places)
    shutil.rmtree(gone.state)
    sweep(gone.shared.parent)
    assert os.listdir(gone.shared.parent) == [stays.shared.name]
    assert (stays.shared / "deep" / "ring").read_text() == "spent"


def test_a_folder_whose_supervisor_lives_stays(tmp_path: Path) -> None:
    places = placed(tmp_path)
    fd = move_in(places)
    shutil.rmtree(places.state)
    sweep(places.shared.parent)
    assert places.shared.exists()
    os.close(fd)
    sweep(places.shared.parent)
    assert not places.shared.exists()


def no_note(shared: Path) -> None:
    (shared / NOTE).unlink()


def torn_note(shared: Path) -> None:
    (shared / NOTE).write_bytes(b"\0")


def elsewhere(shared: Path) -> None:
    """The device of a file system that is not mounted now."""
    _, _, path = (shared / NOTE).read_text().partition("\n")
    (shared / NOTE).write_text(f"123456789\n{path}")


def of_another_state_folder(shared: Path) -> None:
    device, _, _ = (shared / NOTE).read_text().partition("\n")
    (shared / NOTE).write_text(f"{device}\n/nowhere/else")


def for_others_to_write(shared: Path) -> None:
    shared.chmod(0o777)


def note_is_a_link(shared: Path) -> None:
    (shared / NOTE).rename(shared.parent / "note")
    (shared / NOTE).symlink_to(shared.parent / "note")


def named_otherwise(shared: Path) -> None:
    shared.rename(shared.with_name("tailrace-0-backup"))


@pytest.mark.parametrize(
    "change",
    [no_note, torn_note, elsewhere, of_another_state_folder, for_others_to_write, note_is_a_link, named_otherwise],
)
def test_what_is_doubtful_stays(tmp_path: Path, change: Callable[[Path], None]) -> None:
    places = placed(tmp_path)
    change(left(places))
    shutil.rmtree(places.state)
    before = sorted(tmp_path.rglob("*"))
    sweep(places.shared.parent)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_link_in_place_of_a_folder_leads_nowhere(tmp_path: Path) -> None:
    places = placed(tmp_path)
    real = left(places).rename(tmp_path / "real")
    places.shared.symlink_to(real)
    shutil.rmtree(places.state)
    sweep(places.shared.parent)
    assert (real / "deep" / "ring").exists()


def test_a_folder_that_is_removed_right_now_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places = placed(tmp_path)
    left(places)
    opened = os.open

    def removed_meanwhile(path: Path, flags: int, mode: int = 0o777) -> int:
        monkeypatch.undo()
        fd = opened(path, flags, mode)
        shutil.rmtree(places.shared)
        return fd

    monkeypatch.setattr(os, "open", removed_meanwhile)
    os.close(move_in(places))
    assert os.listdir(places.shared) == [NOTE]


def test_a_supervisor_whose_state_folder_was_replaced_keeps_its_shared_one(tmp_path: Path) -> None:
    places = placed(tmp_path)
    first = move_in(places)
    shutil.rmtree(places.state)
    again = claim(places)
    with pytest.raises(Taken, match="end it first"):
        move_in(places)
    os.close(again)
    os.close(first)


def test_a_start_sweeps(tmp_path: Path) -> None:
    places = Places.of(tmp_path / "gone")
    left(places)
    shutil.rmtree(places.state)

    async def body() -> None:
        async with gateway(
            yaml_for("http://127.0.0.1:1", plugins="- counted:Counted: {}", more=f"state: {tmp_path}\n")
        ):
            assert not places.shared.exists()

    try:
        run(body())
    finally:
        shutil.rmtree(places.shared, ignore_errors=True)
