"""Where a host keeps what outlives a restart, and what is said where it cannot."""

from __future__ import annotations

import os
from importlib.resources import files
from pathlib import Path

import pytest
from tailrace.proxy import ground
from tailrace.proxy.cli import main
from tailrace.proxy.ground import Places, claim, folder_fault, own_folder

GATEWAY = "listen: 127.0.0.1:0\nmodels: {m: {workers: ['http://127.0.0.1:2']}}\nplugins: [quota]\n"
DEPLOY = files("tailrace.config").joinpath("deploy")


@pytest.fixture
def not_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that this user may not write in, also where root runs the tests."""
    folder = tmp_path / "theirs"
    folder.mkdir()
    allowed = os.access

    def access(path: os.PathLike[str] | str, mode: int) -> bool:
        return Path(path) != folder and allowed(path, mode)

    monkeypatch.setattr(ground.os, "access", access)
    return folder


def test_a_folder_that_cannot_be_had(not_ours: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert folder_fault(not_ours) == f"{not_ours} cannot be written by this user"
    assert folder_fault(not_ours / "a" / "b") == f"it cannot be made in {not_ours}"
    assert folder_fault(tmp_path / "file" / "a") == f"{tmp_path}/file is no folder"
    assert folder_fault(tmp_path / "a" / "b") is None
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("command", ["check", "serve"])
def test_check_and_serve_name_it_and_the_plugin(
    not_ours: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    file = tmp_path / "gateway.yaml"
    file.write_text(f"{GATEWAY}state: {not_ours}/state\n")
    assert main([command, str(file)]) == 2
    assert capsys.readouterr().err == (
        f"{file}:4: state: plugin 'quota' keeps files in {not_ours}/state, but it cannot be made in {not_ours}; "
        "name one that this user may write in `state`, or with systemd's `StateDirectory=tailrace`\n"
    )
    file.write_text(file.read_text().replace("[quota]", "[route]"))
    assert main(["check", str(file)]) == 0


def test_one_that_turns_out_to_be_none(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=rf"the state folder {tmp_path}/file/a cannot be used: .*; `state` names another"):
        claim(Places.of(tmp_path / "file" / "a"))


def test_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("STATE_DIRECTORY", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/h")
    assert own_folder() == Path("/h/.local/state/tailrace")
    monkeypatch.setenv("XDG_STATE_HOME", "/x")
    assert own_folder() == Path("/x/tailrace")
    monkeypatch.setenv("STATE_DIRECTORY", "/s:/t")
    assert own_folder() == Path("/s")


def test_a_user_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless(_: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("STATE_DIRECTORY", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "expanduser", homeless)
    assert own_folder() == Path("/var/lib/tailrace")


def test_the_unit_and_the_image_have_one() -> None:
    unit = DEPLOY.joinpath("tailrace.service").read_text().splitlines()
    assert "StateDirectory=tailrace" in unit
    assert "StateDirectoryMode=0700" in unit
    image = DEPLOY.joinpath("Dockerfile").read_text().splitlines()
    assert "VOLUME /var/lib/tailrace" in image
    assert any(line.startswith("ENV ") and "STATE_DIRECTORY=/var/lib/tailrace" in line for line in image)
    made = next(number for number, line in enumerate(image) if "install -d -o tailrace" in line)
    assert image[made].endswith("/var/lib/tailrace")
    # The owner of the folder is what a fresh volume takes over.
    assert made < image.index("VOLUME /var/lib/tailrace") < image.index("USER tailrace")
