"""Log lines: one an event, whatever is in it."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from tailrace.proxy import logs

log = logging.getLogger("tailrace")


@pytest.fixture(autouse=True)
def _restored(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    root = logging.getLogger()
    handlers, level, ours = root.handlers[:], root.level, log.level
    monkeypatch.setenv(logs.VARIABLE, "info")
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    log.setLevel(ours)


def test_line_names_moment_level_and_origin(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("gateway[1]")
    log.warning("%d of %d", 1, 2)
    moment, level, rest = capsys.readouterr().err.split(" ", 2)
    assert moment.endswith("Z")
    assert (level, rest) == ("warn", " gateway[1]: 1 of 2\n")


def test_text_from_outside_cannot_forge_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("gateway[0]")
    log.error("unknown model '%s'", "x\n2026-01-01 error: forged\r\x1b[31m")
    assert capsys.readouterr().err.endswith("unknown model 'x | 2026-01-01 error: forged\\x0d\\x1b[31m'\n")


def test_unexpected_error_is_one_line_with_its_places(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("gateway[0]")

    def inner() -> None:
        raise ValueError("no such thing")

    try:
        inner()
    except ValueError:
        log.exception("it failed")
    (line,) = capsys.readouterr().err.splitlines()
    assert "it failed: ValueError: no such thing (at " in line
    assert line.index("in inner < ") < line.index("in test_unexpected_error")


def test_level_is_kept_for_child_processes(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    logs.configure("supervisor", "error")
    logs.configure("process")
    log.warning("not shown")
    log.error("shown")
    assert capsys.readouterr().err.endswith(" error process: shown\n")
    monkeypatch.setenv(logs.VARIABLE, "nonsense")
    logs.configure("process")
    assert log.level == logging.INFO
