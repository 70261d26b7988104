"""Changed files are noticed, however they were changed."""

from __future__ import annotations

import os
from pathlib import Path

from tailrace.proxy.watchfiles import Watch


def test_every_kind_of_change_is_seen_once(tmp_path: Path) -> None:
    written, replaced, linked, removed, made = (tmp_path / name for name in ("a", "b", "c", "d", "e"))
    for path in (written, replaced, removed, tmp_path / "one", tmp_path / "two"):
        path.write_text("old")
    linked.symlink_to(tmp_path / "one")
    files = [written, replaced, linked, removed, made]
    watch = Watch(files)
    assert watch.changed() == []
    written.write_text("new text")
    (tmp_path / "new").write_text("old")
    os.replace(tmp_path / "new", replaced)
    linked.unlink()
    linked.symlink_to(tmp_path / "two")
    removed.unlink()
    made.write_text("")
    assert watch.changed() == files
    assert watch.changed() == []


def test_other_files_can_be_followed(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text("1")
    two.write_text("2")
    watch = Watch([one])
    watch.follow([two])
    one.write_text("changed")
    assert watch.changed() == []
    two.write_text("changed")
    assert watch.changed() == [two]
