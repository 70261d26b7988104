"""The sweep looks at everything, whatever comes of looking at one."""

from __future__ import annotations

import asyncio

from fakes import run
from tailrace.proxy.sweep import LANES, TICK, Sweep


class Looked:
    """Counts visits, and may fail at each."""

    def __init__(self, *, fails: bool) -> None:
        self.visits = 0
        self._fails = fails

    def visit(self, now: float) -> None:
        self.visits += 1
        if self._fails:
            raise RuntimeError("broken")


def test_one_that_fails_keeps_no_other_from_being_looked_at(caplog):
    async def body():
        sweep = Sweep(asyncio.get_running_loop())
        watched = [Looked(fails=number % 2 == 0) for number in range(8 * LANES)]
        lanes = [sweep.add(each) for each in watched]
        assert len({id(lane) for lane in lanes}) == LANES
        sweep.start()
        while not all(each.visits for each in watched):
            await asyncio.sleep(TICK)
        sweep.stop()

    run(body())
    assert "could not be looked at" in caplog.text
