"""A real vLLM for the tests that ask for one, shared for as long as it is well.

Tests that start an engine by other means come last, when the shared one is gone: two at a time are too much for a small
machine.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from real_vllm.engines import MODEL, VLLM, Engines, Vllm

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    ours = [item for item in items if item.path.is_relative_to(HERE)]
    for item in ours:
        item.add_marker(pytest.mark.real_vllm)
        item.add_marker(pytest.mark.timeout(600))
        if not (VLLM and MODEL):
            item.add_marker(pytest.mark.skip(reason="TAILRACE_TEST_VLLM and TAILRACE_TEST_MODEL are not set"))
    ours.sort(key=_turn)
    theirs = iter(ours)
    items[:] = [next(theirs) if item.path.is_relative_to(HERE) else item for item in items]


def _turn(item: pytest.Item) -> int:
    """Tests that leave the engine as it was, then those that kill it, then those that start their own."""
    if "engines" not in getattr(item, "fixturenames", ()):
        return 2
    return int(item.path.stem == "test_failures")


@pytest.fixture(scope="session", autouse=True)
def frozen_heap() -> None:
    """The gateway runs beside both SDKs here, which its collector need not go through again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def session_engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engines]:
    engines = Engines(tmp_path_factory.mktemp("vllm"))
    try:
        yield engines
    finally:
        engines.stop()


@pytest.fixture
def engines(session_engines: Engines) -> Engines:
    return session_engines


@pytest.fixture
def engine(engines: Engines) -> Vllm:
    """A healthy vLLM with the common flags."""
    return engines.running()


@pytest.fixture(autouse=True)
def one_at_a_time(request: pytest.FixtureRequest) -> None:
    if "engines" not in request.fixturenames and VLLM:
        request.getfixturevalue("session_engines").stop()
