"""Puts this folder on the path of every test (`import fakes`), and lets no test be skipped where that is asked."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest

MUST_RUN = "TAILRACE_TESTS_MUST_RUN"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """With TAILRACE_TESTS_MUST_RUN set, a test that would be skipped fails with the reason."""
    report: Any = yield
    if report.skipped and not hasattr(report, "wasxfail") and os.environ.get(MUST_RUN):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped, but {MUST_RUN} is set: {report.longrepr}"
    return report


@pytest.fixture(autouse=True)
def nothing_is_being_handled() -> None:
    """An exception that still counts as being handled would turn up in every later one, and keep its frames alive.

    Compiled coroutines can leave one behind where they are cancelled in the exit of an `async with`.
    """
    assert sys.exc_info() == (None, None, None)
