"""A serving gateway whose processes are killed, one a second: clients see whole answers or plain cuts, no mixture."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import Counter
from pathlib import Path

import orjson
import pytest
import uvloop
from fakes import Connection, Request, Upstream, chat_answer, chunked, json_answer, stream_of, yaml_for
from fuzz.answers import read_all
from fuzz.peers import Client
from served import Served, engine, serving

KILLS = int(os.environ.get("TAILRACE_KILLS", "6"))
CLIENTS = 24
WORDS = 12
PAUSE = 0.02
CHAT = "/v1/chat/completions"
pytestmark = pytest.mark.timeout(90 + 8 * KILLS)


def stream_for(number: int) -> list[bytes]:
    return stream_of([f"{number}.{word}" for word in range(WORDS)])


async def slow_answer(conn: Connection, request: Request) -> None:
    """An answer that tells whose it is in every piece."""
    asked = request.json()
    number = asked["seed"]
    if not asked["stream"]:
        await asyncio.sleep(PAUSE * 3)
        await conn.send(json_answer(chat_answer(f"{number}")))
        return
    await conn.send(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
    for event in stream_for(number):
        await conn.send(chunked(event))
        await asyncio.sleep(PAUSE)
    await conn.send(chunked(b""))


class Load:
    """Clients that ask for ever, each call on a connection of its own, and what came of it."""

    def __init__(self, url: str) -> None:
        host, port = url.removeprefix("http://").split(":")
        self._host, self._port = host, int(port)
        self.seen: Counter[str] = Counter()
        self.over = False

    async def run(self, first: int) -> None:
        number = first
        while not self.over:
            number += CLIENTS
            self.seen[await self.ask(number, stream=number % 3 != 0)] += 1

    async def ask(self, number: int, *, stream: bool) -> str:
        """whole, cut, nothing or refused; anything else is a failure."""
        body = orjson.dumps({"model": "m", "messages": [], "stream": stream, "seed": number})
        head = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nconnection: close\r\n"
        loop = asyncio.get_running_loop()
        try:
            _, client = await loop.create_connection(Client, self._host, self._port)
        except OSError:
            return "refused"
        await client.send([head.encode() + b"content-length: %d\r\n\r\n" % len(body) + body])
        await client.listen(quiet=30.0)
        assert client.closed.is_set(), f"no end of call {number} after {client.got[-200:]!r}"
        answers = read_all(client.got)
        if not answers:
            return "nothing"
        [answer] = answers
        assert answer.status == 200, answer
        expected = b"".join(stream_for(number)) if stream else orjson.dumps(chat_answer(f"{number}"))
        if answer.complete:
            assert answer.body == expected
            return "whole"
        assert expected.startswith(answer.body)
        return "cut"


async def kill_one(it: Served, random_: random.Random) -> None:
    while not (pids := it.processes):
        await asyncio.sleep(0.05)
    os.kill(random_.choice(pids), signal.SIGKILL)


async def all_serve(it: Served) -> None:
    while (await it.get("/readyz")).json()["processes"] != {"serving": 2, "wanted": 2}:
        await asyncio.sleep(0.05)


def test_processes_are_killed_under_load(tmp_path: Path) -> None:
    async def body() -> None:
        yaml = yaml_for(
            "WORKER", plugins="[{route: {}}]", more="processes: 2\npre_stop: 0\ntimeouts: {upstream_idle: 1}\n"
        )
        async with (
            Upstream(engine(slow_answer)) as upstream,
            serving(tmp_path, yaml.replace("WORKER", upstream.url)) as it,
        ):
            load = Load(it.url)
            clients = [asyncio.ensure_future(load.run(first)) for first in range(CLIENTS)]
            random_ = random.Random(7)
            for _ in range(KILLS):
                await asyncio.sleep(1.0)
                await kill_one(it, random_)
                assert not [client for client in clients if client.done()], await asyncio.gather(*clients)
            await asyncio.sleep(1.0)
            load.over = True
            await asyncio.gather(*clients)
            print(dict(load.seen))
            assert load.seen["whole"] > 20 * KILLS
            assert load.seen["cut"] > KILLS, "nothing was killed in the middle"
            assert not load.seen["refused"]
            await all_serve(it)
            assert await load.ask(1, stream=True) == "whole"
            assert f"tailrace_process_restarts_total {KILLS}" in (await it.get("/metrics")).body.decode()
            # What the dead had open towards the worker went with them; of the living, one spare may rest in each.
            async with asyncio.timeout(20):
                while sum(connection.closed_at is None for connection in upstream.connections) > 4:
                    await asyncio.sleep(0.05)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(body())
