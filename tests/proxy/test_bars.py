"""Bars: workers that get no new calls though they would take them, and the floor of those that are left."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from tailrace.proxy.address import Address
from tailrace.proxy.fleet import SUSPECT, Pool, Worker

pytestmark = pytest.mark.interpreted  # with stand-ins, which compiled code refuses


@dataclass
class Scene:
    workers: list[Worker]
    pool: Pool = field(init=False)

    def __post_init__(self) -> None:
        self.pool = Pool("p", self.workers)
        for worker in self.workers:
            worker.pools.append(self.pool)
        self.pool.rebuild()

    @property
    def left(self) -> list[int]:
        return [self.workers.index(worker) for worker in self.pool.eligible]


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    seconds = iter(range(1000))
    monkeypatch.setattr("tailrace.proxy.fleet.time.monotonic", lambda: float(next(seconds)))
    return Scene([Worker(Address.parse(f"http://127.0.0.1:{port}"), None) for port in range(1001, 1006)])  # type: ignore[arg-type]


def test_a_barred_worker_leaves_the_list_and_comes_back(scene: Scene) -> None:
    scene.workers[1].bar("breaker")
    assert scene.left == [0, 2, 3, 4]
    scene.workers[1].unbar("breaker")
    assert scene.left == [0, 1, 2, 3, 4]


def test_two_bars_are_two_reasons(scene: Scene) -> None:
    scene.workers[1].bar("breaker")
    scene.workers[1].bar(SUSPECT)
    scene.workers[1].unbar("breaker")
    assert scene.left == [0, 2, 3, 4]
    scene.workers[1].unbar(SUSPECT)
    assert scene.left == [0, 1, 2, 3, 4]


def test_bars_leave_half_of_a_pool_rounded_up(scene: Scene) -> None:
    for number in (3, 1, 0, 2):
        scene.workers[number].bar("breaker")
    # The ones barred longest ago are let in again, beside the one that is not.
    assert scene.left == [1, 3, 4]


def test_suspects_are_the_last_to_be_let_in_again(scene: Scene) -> None:
    scene.workers[0].bar(SUSPECT)
    for number in (1, 2, 3):
        scene.workers[number].bar("breaker")
    assert scene.left == [1, 2, 4]


def test_the_floor_counts_those_that_take_calls(scene: Scene) -> None:
    for number in (0, 1, 2):
        scene.workers[number].drained = True
    scene.workers[3].bar("breaker")
    assert scene.left == [4]
    scene.workers[4].bar("breaker")
    assert scene.left == [3]


def test_a_pool_of_one_goes_on(scene: Scene) -> None:
    alone = Scene(scene.workers[:1])
    alone.workers[0].bar("breaker")
    assert alone.left == [0]
