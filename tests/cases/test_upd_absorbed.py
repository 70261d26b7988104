"""What a plugin has dealt with is over: no cancellation that it absorbed goes on being handled (UPD-04)."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass

from fakes import chat_answer, json_answer, run
from tailrace.proxy.call import Call
from tailrace.proxy.plugin import Plugin

from cases.scene import CHAT, scene


@dataclass(frozen=True)
class Nothing:
    pass


class Absorbs(Plugin[Nothing]):
    """Absorbs cancellations in every usual way, and notes what counts as being handled right after each."""

    Config = Nothing

    def __init__(self, config: Nothing) -> None:
        super().__init__(config)
        self.seen: list[object] = []

    async def on_request(self, call: Call) -> None:
        try:
            async with asyncio.timeout(0):
                await asyncio.sleep(1)
        except TimeoutError:
            pass
        self.seen.append(sys.exc_info()[1])
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._fail())
                await asyncio.sleep(1)
        except* ValueError:
            pass
        self.seen.append(sys.exc_info()[1])
        try:
            raise RuntimeError
        except RuntimeError as error:
            self.seen.append(error.__context__)

    async def _fail(self) -> None:
        raise ValueError


def test_UPD_04_an_absorbed_cancellation_is_not_handled_any_more():
    async def body():
        plugins = "['cases.witness:Witness', 'cases.test_upd_absorbed:Absorbs']"
        async with scene(json_answer(chat_answer("hi")), plugins=plugins) as s:
            plugin = s.process.service.chain.pipeline.links[1].plugin
            assert (await s.ask(CHAT)).status == 200
            assert plugin.seen == [None, None, None]

    run(body())
