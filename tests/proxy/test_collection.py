"""Garbage collection: in full only while nothing is running."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from fakes import run
from tailrace.proxy import collection
from tailrace.proxy.collection import Collection, resident


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


def full_collections() -> int:
    return int(gc.get_stats()[2]["collections"])


def allocate(count: int) -> list[Any]:
    """Objects that stay: the collector looks at the old ones only once there are many new ones."""
    return [[] for _ in range(count)]


def test_no_full_collection_while_a_call_runs_and_one_when_idle() -> None:
    async def body() -> None:
        service: Any = SimpleNamespace(loop=asyncio.get_running_loop(), active=1)
        taken_over = Collection(service)
        taken_over.start()
        before = full_collections()
        # Enough for the usual thresholds to collect in full several times over.
        kept = allocate(collection.YOUNG * (collection.MIDDLE + 1) * 24)
        assert full_collections() == before
        assert not taken_over.due()
        service.active = 0
        assert taken_over.due()
        taken_over.stop()
        assert kept

    run(body())


def test_growth_without_an_idle_moment_forces_one(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body() -> None:
        service: Any = SimpleNamespace(loop=asyncio.get_running_loop(), active=1)
        taken_over = Collection(service)
        taken_over.start()
        kept = allocate(collection.YOUNG * (collection.MIDDLE + 1) * 4)
        assert not taken_over.due()
        monkeypatch.setattr(collection, "resident", lambda: resident() + collection.GROWTH * 2)
        assert taken_over.due()
        taken_over.stop()
        assert kept

    run(body())


def test_what_lives_at_the_start_is_frozen_without_a_collection() -> None:
    async def body() -> None:
        collection.tidy()
        service: Any = SimpleNamespace(loop=asyncio.get_running_loop(), active=0)
        taken_over = Collection(service)
        before = full_collections()
        # Connections are accepted by now: a collection would hold them up.
        taken_over.start()
        assert full_collections() == before
        assert gc.get_freeze_count() > 10_000
        taken_over.stop()

    run(body())
