"""Some hundred worlds in every run of the tests; `make engine-seeds` plays ten thousand. A failure names its seed."""

from __future__ import annotations

import os
from pathlib import Path
from unittest import mock

import pytest
from tailrace.proxy import attempt, fleet, runners, sending

from seeds.rules import hold_always, hold_at_the_end
from seeds.world import World

pytestmark = [pytest.mark.interpreted, pytest.mark.timeout(3600)]

FIRST = int(os.environ.get("TAILRACE_SEED", "0"))
SEEDS = int(os.environ.get("TAILRACE_SEEDS", "200"))
CHUNK = 25


def play(seed: int, folder: Path) -> World:
    """One world; fails with the seed in its words."""
    world = World(seed, folder)
    with (
        mock.patch.object(attempt, "monotonic_ns", world.loop.time_ns),
        mock.patch.object(runners, "monotonic_ns", world.loop.time_ns),
        mock.patch.object(fleet.time, "monotonic", world.loop.time),
        mock.patch.object(sending, "request", lambda call, attempt: (b"head", b"body")),
    ):
        try:
            world.run(hold_always)
            hold_at_the_end(world)
        except BaseException as error:
            raise AssertionError(f"seed {seed}: {error!r}; TAILRACE_SEED={seed} TAILRACE_SEEDS=1 plays it") from error
    return world


@pytest.mark.parametrize("first", range(FIRST, FIRST + SEEDS, CHUNK))
def test_the_rules_hold(first: int, tmp_path: Path):
    for seed in range(first, min(first + CHUNK, FIRST + SEEDS)):
        play(seed, tmp_path / str(seed))


def test_worlds_are_worth_it(tmp_path: Path):
    """Among some worlds there is everything that can happen."""
    seen: set[str] = set()
    for seed in range(60):
        world = play(seed, tmp_path / str(seed))
        for played in world.calls:
            seen.update(played.outcomes)
            seen.update(attempt.why for attempt in played.call.tries)
        for process in world.processes:
            seen.update(f"{to} {why}" for (to, why), count in process.breaker.panel.changes.items() if count)
            seen.update(f"probe {end}" for end, count in process.breaker.panel.probes.items() if count)
    assert {
        "completed", "cut", "left", "degraded", "failed total_timeout", "failed first_content_timeout",
        "first", "retry", "hedge", "fallback", "open faults", "open stalls", "closed faults", "probe passed",
        "probe failed", "probe neutral",
    } <= seen  # fmt: skip


def test_a_world_is_the_same_every_time(tmp_path: Path):
    def told(folder: str) -> list[object]:
        world = play(11, tmp_path / folder)
        return [
            (each.outcomes, [(a.worker.name, a.why, a.started_ns) for a in each.call.tries]) for each in world.calls
        ]

    assert told("one") == told("two")
