"""A plugin of one's own: a module beside the YAML, without a word to Python."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from fakes import CHAT, GOOD, PATH, RawClient, Upstream, run, yaml_for
from served import engine, serving
from tailrace.proxy.cli import main

MODULE = """\
from dataclasses import dataclass
from own_words import WORD
from tailrace.proxy.plugin import Plugin

@dataclass(frozen=True)
class Config: pass

class Own(Plugin):
    Config = Config

    def on_answer(self, call, head):
        head.set(b"x-own", WORD)
"""
YAML = "listen: 127.0.0.1:1\nmodels: {m: {workers: ['http://a:1']}}\nplugins:\n- "


@pytest.fixture(autouse=True)
def own_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", sys.path[:])


def test_it_is_found_in_the_folder_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "own_plugin.py").write_text(MODULE)
    (tmp_path / "own_words.py").write_text("WORD = b'hello'\n")
    # What is installed comes first.
    (tmp_path / "orjson.py").write_text("raise SystemExit(3)\n")

    async def body() -> None:
        async with Upstream(engine(GOOD)) as upstream:
            yaml = yaml_for(upstream, plugins="['own_plugin:Own']")
            async with serving(tmp_path, yaml) as it, RawClient(it.url) as client:
                answer = await client.post(PATH, CHAT)
                assert (answer.status, answer.header("x-own")) == (200, "hello")

    run(body())


def faults(folder: Path, entry: str, capsys: pytest.CaptureFixture[str]) -> str:
    (folder / "file.yaml").write_text(YAML + entry + "\n")
    assert main(["check", str(folder / "file.yaml")]) == 2
    return capsys.readouterr().err


def test_a_module_that_is_nowhere_says_where_it_was_looked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = faults(tmp_path, "own_none:Own", capsys)
    assert f":4: plugins[0]: there is no module 'own_none'; looked in {tmp_path}, " in told
    assert os.path.dirname(pytest.__file__).removesuffix("/pytest") in told


def test_a_module_that_cannot_be_imported_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "own_lacking.py").write_text("import own_missing\n")
    told = faults(tmp_path, "own_lacking:Own", capsys)
    assert "module 'own_lacking' cannot be imported: ModuleNotFoundError: No module named 'own_missing'" in told
    (tmp_path / "own_broken.py").write_text("\n1 / 0\n")
    told = faults(tmp_path, "own_broken:Own", capsys)
    assert f"cannot be imported: ZeroDivisionError: division by zero (at {tmp_path}/own_broken.py:2 in <module>" in told
    (tmp_path / "own_empty.py").write_text("")
    assert "module 'own_empty' has no 'Own'" in faults(tmp_path, "own_empty:Own", capsys)
