"""What holds for every test: this folder on its path, the same examples on every run, no skips where that is asked."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from tailrace.proxy.ground import NOTE, Places

MUST_RUN = "TAILRACE_TESTS_MUST_RUN"

# The same examples on every run, and none kept in the working tree.
settings.register_profile("steady", derandomize=True, database=None, deadline=None)
settings.load_profile("steady")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """With TAILRACE_TESTS_MUST_RUN set, a test that would be skipped fails with the reason."""
    report: Any = yield
    # Tests provoke texts that UTF-8 cannot carry, and reports go from one process to another.
    report.sections = [(title, _speakable(text)) for title, text in report.sections]
    if report.skipped and not hasattr(report, "wasxfail") and os.environ.get(MUST_RUN):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped, but {MUST_RUN} is set: {report.longrepr}"
    return report


def _speakable(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()


@pytest.fixture(autouse=True)
def nothing_is_being_handled() -> None:
    """An exception that still counts as being handled would turn up in every later one, and keep its frames alive.

    Compiled coroutines can leave one behind where they are cancelled in the exit of an `async with`.
    """
    assert sys.exc_info() == (None, None, None)


@pytest.fixture(autouse=True, scope="session")
def nothing_stays_in_shared_memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What gateways of tests keep for their next start goes at the end: none comes on a test's state folder."""
    yield
    base = tmp_path_factory.getbasetemp()
    # Some tests make such a folder by themselves, without a note.
    made = {Places.of(Path(folder)).shared for folder, _, _ in os.walk(base)}
    root = Places.of(base).shared.parent
    for shared in root.glob(f"tailrace-{os.getuid()}-*"):
        if shared in made or _noted(shared).startswith(f"{base.resolve()}/"):
            shutil.rmtree(shared, ignore_errors=True)


def _noted(shared: Path) -> str:
    """The path of the state folder that a shared one belongs to; empty where it does not say so."""
    try:
        return (shared / NOTE).read_text().partition("\n")[2]
    except (OSError, ValueError):
        return ""
