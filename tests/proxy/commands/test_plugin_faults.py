"""What a plugin's own code does wrong is a fault of the file, at the line of its entry, and is told as such."""

# ruff: noqa: E501 -- a table reads best with one case a line

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tailrace.proxy.cli import main

MODULE = """\
from dataclasses import dataclass
from tailrace.proxy.plugin import Plugin
{before}
@dataclass(frozen=True)
class Config:
    size: int = 1
{inside}
class Own(Plugin):
    {config}
    def __init__(self, config):
        {made}
"""
YAML = "listen: 127.0.0.1:1\nmodels: {m: {workers: ['http://a:1']}}\nplugins:\n- "

FAULTS = {
    "made": ({"made": "{}['x']"}, "plugin '{name}' itself failed when it was made: KeyError: 'x' (at {file}:11 in __init__)"),
    "refuses": ({"made": "raise ValueError('no such size')"}, "plugin '{name}' cannot be made: no such size"),
    "checks": (
        {"inside": "    def check(self):\n        1 / 0"},
        "plugins[0]: plugin '{name}' itself failed while its options were read: ZeroDivisionError: division by zero "
        "(at {file}:8 in check)",
    ),
    "checks, with ValueError": (
        {"inside": "    def check(self):\n        int('a')"},
        "plugins[0]: plugin '{name}' itself failed while its options were read: ValueError: invalid literal for int() "
        "with base 10: 'a' (at {file}:8 in check)",
    ),
    "looks": (
        {"inside": "    def look(self):\n        yield open('/none/file')"},
        "plugins[0]: plugin '{name}' itself failed while its options were read: FileNotFoundError: [Errno 2] No such "
        "file or directory: '/none/file' (at {file}:8 in look)",
    ),
    "looks for names": (
        {"inside": "    def unknown_names(self, models, pools):\n        yield models['n']"},
        "plugin '{name}' itself failed at its unknown names: KeyError: 'n' (at {file}:8 in unknown_names)",
    ),
    "has no options": (
        {"config": "other = 1"},
        "plugins[0]: plugin '{name}' lacks its `Config`, the frozen dataclass of its options; an empty one will do",
    ),
    "has options of no kind": (
        {"inside": "    other: 'complex' = 1j"},
        "plugins[0]: plugin '{name}' itself failed while its options were read: TypeError: Config.other: no configuration "
        "can hold a <class 'complex'>",
    ),
    "is no code": (
        {"before": "class"},
        "plugins[0]: module '{module}' cannot be imported: SyntaxError: invalid syntax ({module}.py, line 3)",
    ),
    "ends": ({"before": "raise SystemExit(3)"}, "plugins[0]: module '{module}' cannot be imported: SystemExit: 3 (at {file}:3 in <module>)"),
}  # fmt: skip


@pytest.mark.parametrize("options", ["", ": {}", ": {size: 2}"], ids=["bare", "empty", "given"])
@pytest.mark.parametrize(("written", "fault"), FAULTS.values(), ids=FAULTS)
@pytest.mark.parametrize("command", ["check", "serve"])
def test_it_is_told_at_its_entry(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    written: dict[str, str],
    fault: str,
    options: str,
) -> None:
    monkeypatch.setattr(sys, "path", sys.path[:])
    module = f"own_{tmp_path.name}"
    parts = {"before": "", "inside": "", "config": "Config = Config", "made": "pass"} | written
    (tmp_path / f"{module}.py").write_text(MODULE.format(**parts))
    file = tmp_path / "file.yaml"
    file.write_text(f"{YAML}{module}:Own{options}\n")
    assert main([command, str(file)]) == 2
    shown = capsys.readouterr()
    told = fault.format(name=f"{module}:Own", module=module, file=tmp_path / f"{module}.py")
    assert (shown.out, shown.err) == ("", f"{file}:4: {told}\n")


def test_options_left_out_are_checked_all_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", sys.path[:])
    text = MODULE.format(
        before="", inside="    def check(self):\n        yield 'too small'", config="Config = Config", made="pass"
    )
    (tmp_path / "own_small.py").write_text(text)
    (tmp_path / "file.yaml").write_text(f"{YAML}own_small:Own\n")
    assert main(["check", str(tmp_path / "file.yaml")]) == 2
    assert capsys.readouterr().err == f"{tmp_path}/file.yaml:4: plugins[0]: too small\n"
