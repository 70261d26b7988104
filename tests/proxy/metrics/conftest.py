"""Shared memory of its own for each test that asks for it."""

from collections.abc import Iterator

import pytest
from tailrace.proxy.metrics import Segment


@pytest.fixture
def segment() -> Iterator[Segment]:
    segment = Segment.create()
    yield segment
    segment.close()
