"""What limits keep in memory for the next start goes with the test."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tailrace.proxy.ground import Places


@pytest.fixture(autouse=True)
def nothing_stays_in_memory(tmp_path: Path) -> Iterator[None]:
    """Remove the shared folders of all state folders that a test has made."""
    yield
    for lock in tmp_path.rglob("lock"):
        shutil.rmtree(Places.of(lock.parent).shared, ignore_errors=True)
