"""A plugin's code that makes something else of its cancellation: what ended the call counts, not that (DIS-04)."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

import pytest
from fakes import run
from tailrace.proxy.fault import Reject
from tailrace.proxy.outcome import Ending
from tailrace.proxy.plugin import Plugin
from tailrace.proxy.reply import Reply

from cases.scene import CHAT, scene, until
from cases.scripts import WELL


@dataclass(frozen=True)
class How:
    how: str


class Translates(Plugin[How]):
    """Waits for what never comes, and raises something else than its cancellation."""

    Config = How
    waiting = 0

    async def on_request(self, call):
        if self.config.how == "iterator":
            return Reply(200, self._pieces())
        return await self._waits()

    async def _pieces(self):
        yield b"{"
        await self._waits()

    async def _waits(self):
        self.waiting += 1
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError as cancelled:
            raise (Reject(503, "busy", "Busy.") if self.config.how == "Reject" else ValueError("lost")) from cancelled
        finally:
            if self.config.how == "finally":
                raise KeyError("lost")


WAYS = ["ValueError", "finally", "Reject", "iterator"]
TERMS = ["", ", budget_ms: 60000", ", on_error: open"]


def chain(how, terms):
    return f'[cases.witness:Witness, {{"{__name__}:Translates": {{how: {how}}}{terms}}}]'


@pytest.mark.parametrize("terms", TERMS)
@pytest.mark.parametrize("how", WAYS)
def test_DIS_04_a_client_that_left_has_left_whatever_a_plugin_raises(how, terms, caplog):
    async def body():
        async with scene(WELL, plugins=chain(how, terms)) as s:
            plugin = s.process.service.chain.pipeline.links[1].plugin
            client = await s.begin(CHAT)
            await until(lambda: plugin.waiting, "the wait")
            await client.close()
            outcome = await s.outcome()
            assert (outcome.ending, outcome.status, outcome.fault) == (Ending.CLIENT_GONE, 499, None)
            assert s.upstream.requests == []
            assert ("lost" in caplog.text) == (how != "Reject")

    with caplog.at_level(logging.INFO):
        run(body())
    assert [record.levelname for record in caplog.records if record.levelno > logging.INFO] == (
        [] if how == "Reject" else ["WARNING"]
    )


@pytest.mark.parametrize("terms", TERMS)
@pytest.mark.parametrize("how", ["ValueError", "finally"])
def test_DIS_04_a_call_at_its_limit_is_late_whatever_a_plugin_raises(how, terms):
    async def body():
        async with scene(WELL, plugins=chain(how, terms), more="timeouts: {total: 0.2}") as s:
            answer = await s.ask(CHAT)
            assert (answer.status, answer.json()["error"]["code"]) == (504, "upstream_timeout")
            assert (await s.outcome()).ending is Ending.DEADLINE
            assert s.upstream.requests == []

    run(body())
