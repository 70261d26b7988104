"""`/sim/control`: arming faults from outside."""

from typing import Any

import pytest
from fakes import run
from sim_client import CHAT, HELLO, fetch, get, running, turns
from tailrace.worker.sim import Fault
from tailrace.worker.sim.exchange import Exchange, Request
from tailrace.worker.sim.failures import fault_from
from tailrace.worker.sim.routes import dispatch

CONTROL = "/sim/control"


def test_faults_are_armed_shown_and_cleared() -> None:
    async def ask() -> None:
        async with running(api_keys=("key",)) as sim:
            armed = await fetch(sim, CONTROL, {"fail": "stall", "after_tokens": 3, "count": 2})
            assert armed.json == {"armed": {"fail": "stall", "after_tokens": 3, "count": 2}}
            shown = (await get(sim, CONTROL)).json
            assert shown == {
                "state": "serving",
                "frozen": False,
                "running": 0,
                "waiting": 0,
                "load": 0,
                "faults": [{"fail": "stall", "after_tokens": 3, "count": 2}],
            }
            assert (await fetch(sim, CONTROL, {"fail": "none"})).json["faults"] == []
            assert (await fetch(sim, CONTROL, {}, method="DELETE")).status == 405

    run(ask())


def test_fault_of_the_server_happens_at_once_after_it_was_acknowledged() -> None:
    async def ask() -> None:
        async with running() as sim:
            assert (await fetch(sim, CONTROL, {"fail": "engine_killed"})).status == 200
            assert (await get(sim, CONTROL)).json["state"] == "dead"
            assert (await get(sim, "/health")).status == 503
            assert (await fetch(sim, CONTROL, {"fail": "server_killed"})).json == {"armed": {"fail": "server_killed"}}
            assert sim.gone.is_set()

    run(ask())


def test_drain_can_be_asked_for() -> None:
    async def ask() -> None:
        async with running() as sim:
            await fetch(sim, CONTROL, {"fail": "sigterm", "shutdown_timeout": 5})
            await turns()
            assert sim.engine.state == "draining"

    run(ask())


@pytest.mark.parametrize(
    "asked",
    [
        b"{",
        [],
        {},
        {"fail": "nonsense"},
        {"fail": "stall", "after": 3},
        {"fail": "stall", "after_tokens": -1},
        {"fail": "stall", "after_tokens": True},
        {"fail": "stall", "count": "3"},
        {"fail": "error", "status": 200},
        {"fail": "slow", "factor": "x"},
        {"fail": "cut", "rst": 1},
        {"fail": "error", "message": None},
        {"fail": "slow", "factor": 0},
        {"fail": "wrong_usage", "prompt_tokens": 1.5},
        {"fail": "hang", "for_s": -1},
        {"do": "dance"},
        {"do": "thaw", "fail": "stall"},
        {"do": "clear", "fail": "nonsense"},
    ],
)
def test_nonsense_arms_nothing(asked: Any) -> None:
    async def ask() -> None:
        async with running() as sim:
            refused = await fetch(sim, CONTROL, asked)
            assert refused.status == 400
            assert refused.json["detail"]
            assert sim.engine.failures.armed == ()

    run(ask())


class Distant(Exchange):
    """An exchange with another machine."""

    sent: int | None = None

    @property
    def from_loopback(self) -> bool:
        return False

    def reply(self, status: int, *args: Any, **more: Any) -> None:
        self.sent = status


def test_only_this_machine_may_control() -> None:
    async def ask() -> None:
        async with running() as sim:
            exchange = Distant(None, Request("POST", CONTROL, {}, b'{"fail": "unhealthy"}'))  # type: ignore[arg-type]
            dispatch(sim.engine, exchange)
            assert exchange.sent == 404
            assert sim.engine.failures.armed == ()

    run(ask())


def test_zero_count_arms_nothing() -> None:
    async def ask() -> None:
        async with running(faults=(Fault(fail="error", count=0),)) as sim:
            assert (await fetch(sim, CHAT, HELLO | {"max_tokens": 1})).status == 200

    run(ask())


def test_whole_numbers_do_where_numbers_are_asked_for() -> None:
    assert fault_from({"fail": "slow", "factor": 3}) == Fault(fail="slow", factor=3)


def test_faults_of_one_kind_are_cleared() -> None:
    async def ask() -> None:
        async with running() as sim:
            for kind in ("stall", "throttle", "stall", "unhealthy"):
                await fetch(sim, CONTROL, {"fail": kind})
            left = (await fetch(sim, CONTROL, {"do": "clear", "fail": "stall"})).json["faults"]
            assert left == [{"fail": "throttle"}, {"fail": "unhealthy"}]
            assert (await fetch(sim, CONTROL, {"do": "clear"})).json["faults"] == []

    run(ask())
