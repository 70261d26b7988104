"""Log lines for many workers at once."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from tailrace.proxy.lines import EACH, Lines


class Loop:
    """Keeps what is to be called later."""

    def __init__(self) -> None:
        self.later: list[Any] = []

    def call_later(self, _delay: float, call: Any, *args: Any) -> None:
        self.later.append(lambda: call(*args))

    def wait(self) -> None:
        later, self.later = self.later, []
        for call in later:
            call()


def test_many_lines_of_a_kind_are_one(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    loop: Any = Loop()
    lines = Lines(loop)
    for number in range(1000):
        lines.warning("worker %s is gone: %s", number, "x")
    lines.info("worker %s is here", "another")
    assert len(caplog.records) == EACH + 1
    assert len(loop.later) == 2
    caplog.clear()
    loop.wait()
    (told,) = caplog.records
    assert (told.levelname, told.getMessage()) == (
        "WARNING",
        f"worker 999 is gone: x (the last of {1000 - EACH} more within a second)",
    )


def test_few_lines_are_said_as_they_are(caplog: pytest.LogCaptureFixture) -> None:
    loop: Any = Loop()
    lines = Lines(loop)
    for _ in range(2):
        caplog.clear()
        for number in range(EACH):
            lines.error("worker %s", number)
        loop.wait()
        assert [record.getMessage() for record in caplog.records] == [f"worker {number}" for number in range(EACH)]
