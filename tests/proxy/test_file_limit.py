"""The limit of open files: raised as far as it goes, and told only where it is in somebody's way."""

from __future__ import annotations

import logging
import resource

import pytest
from tailrace.proxy.limits import Limits
from tailrace.proxy.supervisor import raise_file_limit


@pytest.mark.parametrize(
    ("hard", "connections", "told"),
    [
        (1024, Limits().connections, "to 40000 for the 20000 connections"),
        (20_000, Limits().connections, "to 40000 for the 20000 connections"),
        (40_000, Limits().connections, None),
        (20_000, 10_001, "to 20002 for the 10001 connections"),
        (20_000, 10_000, None),
        (resource.RLIM_INFINITY, 10**6, None),
    ],
)
def test_what_is_said(
    hard: int, connections: int, told: str | None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    limits = [(512, hard)]
    monkeypatch.setattr(resource, "getrlimit", lambda _what: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _what, both: limits.append(both))
    with caplog.at_level(logging.INFO, "tailrace"):
        raise_file_limit(connections)
    assert limits[-1] == (hard, hard)
    assert all(record.levelno == logging.INFO for record in caplog.records), "nothing is in the way yet"
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == (0 if told is None else 1)
    assert told is None or (told in lines[0] and f"may open {hard} files" in lines[0] and "LimitNOFILE=" in lines[0])


def test_a_limit_that_cannot_be_raised(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def refuse(_what: int, _both: tuple[int, int]) -> None:
        raise ValueError("not allowed")

    monkeypatch.setattr(resource, "getrlimit", lambda _what: (90_000, 100_000))
    monkeypatch.setattr(resource, "setrlimit", refuse)
    raise_file_limit(Limits().connections)
    assert [record.getMessage() for record in caplog.records] == ["the limit of open files stays at 90000: not allowed"]
