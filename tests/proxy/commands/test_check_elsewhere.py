"""`tailrace check --elsewhere`: a file for another machine, which has what is missing here."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pytest
from tailrace.proxy.cli import main
from tailrace.proxy.config import Matching, decode_source, parse

README = (Path(__file__).parents[3] / "README.md").read_text()
GATEWAY = "listen: 127.0.0.1:1\nmodels: {m: {workers: ['http://127.0.0.1:2']}}\n"
HERE = {
    "a key": "hop_key: ${file:/none/key}\n",
    "a database": "plugins: [{auth: {database: '${file:/none/url}'}}, {quota: {store: {url: '${file:/none/url}'}}}]\n",
    "a secret of tokens": "plugins: [{auth: {jwt: [{issuer: i, audience: [a], tenant: t, algorithms: [HS512], "
    "secret: '${file:/none/s}'}]}}]\n",
    "a part of a text": "plugins: [{headers: {request: {set: {authorization: 'Bearer ${file:/none/t}'}}}}]\n",
    "a model": "default_model: ${file:/none/name}\n",
}
CANNOT_BE_KNOWN = "heartbeat: ${file:/none/heartbeat}\n"


@pytest.mark.parametrize("more", HERE.values(), ids=HERE)
def test_secrets_that_are_there(tmp_path: Path, capsys: pytest.CaptureFixture[str], more: str) -> None:
    file = tmp_path / "gateway.yaml"
    file.write_text(GATEWAY + more)
    assert main(["check", "--elsewhere", str(file)]) == 0
    shown = capsys.readouterr()
    assert "****" not in shown.out + shown.err
    for command in ("check", "serve"):
        assert main([command, str(file)]) == 2
        assert "cannot be read: No such file or directory" in capsys.readouterr().err


def test_a_number_that_is_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "gateway.yaml"
    file.write_text(GATEWAY + CANNOT_BE_KNOWN)
    assert main(["check", "--elsewhere", str(file)]) == 2
    assert 'got what "${file:/none/heartbeat}" stands for' in capsys.readouterr().err


def test_a_file_that_is_here_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "key").write_text("short")
    file = tmp_path / "gateway.yaml"
    file.write_text(GATEWAY + "hop_key: ${file:key}\n")
    assert main(["check", "--elsewhere", str(file)]) == 2
    assert "hop_key: give at least 16 characters: " in capsys.readouterr().err


def test_the_worker_of_the_readme(tmp_path: Path) -> None:
    (block,) = (block for block in re.findall(r"```yaml\n(.*?)```", README, re.DOTALL) if "# worker.yaml" in block)
    assert "${file:" in block
    file = tmp_path / "worker.yaml"
    file.write_text(block)
    assert main(["check", "--elsewhere", str(file)]) == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    name: Annotated[str, Matching("[a-z]{1,8}", "a short name")]


def test_no_bound_is_asked_about_what_is_not_here(tmp_path: Path) -> None:
    source = parse("name: ${file:none}", str(tmp_path / "f.yaml"), elsewhere=True)
    assert decode_source(Named, source).name
