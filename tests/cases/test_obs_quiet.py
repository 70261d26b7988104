"""OBS: clients that leave, or send what is no request, are a line each and no crash."""

from __future__ import annotations

import asyncio
import json
import logging
import random
from pathlib import Path
from typing import Any

import orjson
import pytest
from fakes import CHAT, PATH, RawClient, Upstream, chat_chunk, chunked, event, gateway, run, sse_head, until, yaml_for
from scrape import Scrape

STREAM = {**CHAT, "stream": True}
COUNT = 1000
MALFORMED = (
    b"NONSENSE\r\n\r\n",
    b"GET / HTTP/1.1\r\nhost g\r\n\r\n",
    b"POST /v1/chat/completions HTTP/1.1\r\nhost: g\r\ncontent-length: -1\r\n\r\n",
    b"POST /v1/chat/completions HTTP/1.1\r\nhost: g\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
    b"GET / HTTP/3.0\r\nhost: g\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
)


async def worker(conn: Any, request: Any) -> None:
    await conn.send(sse_head())
    for number in range(20):
        await conn.send(chunked(chat_chunk(f"{number}")))
        await asyncio.sleep(0.002)
    await conn.send(chunked(chat_chunk(finish="stop")) + chunked(event("[DONE]")) + b"0\r\n\r\n")


async def leave(url: str, draw: random.Random) -> None:
    """Send some of a request and read some of its answer, then go."""
    body = orjson.dumps(STREAM)
    data = b"POST %b HTTP/1.1\r\nhost: g\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (
        PATH.encode(),
        len(body),
        body,
    )
    async with RawClient(url) as client:
        if draw.random() < 0.3:
            await client.send(data[: draw.randrange(1, len(data))])
        else:
            await client.send(data)
            if draw.random() < 0.8:
                await asyncio.sleep(draw.random() * 0.03)
        if draw.random() < 0.5:
            client.rst()
        else:
            client.fin()


def test_OBS_09_normal_disconnects_are_no_crashes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "tailrace")
    file = tmp_path / "access.log"
    draw = random.Random(11)

    async def body() -> None:
        complaints: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        async with Upstream(worker) as upstream:
            plugins = f"[trace: {{ratio: 0.1}}, access_log: {{file: '{file}'}}]"
            async with gateway(yaml_for(upstream, plugins=plugins)) as process:
                url = process.doors[0].shown
                for _ in range(COUNT // 50):
                    await asyncio.gather(*(leave(url, draw) for _ in range(50)))
                await until(lambda: not process.service.active)
                for number in range(COUNT):
                    async with RawClient(url) as client:
                        await client.send(MALFORMED[number % len(MALFORMED)])
                        client.fin()
                await until(lambda: not process.service.connections)
                scrape = Scrape(process)
                gone = scrape.value("client_gone_total")
                calls = scrape.value("requests_total", outcome="client_gone")
                assert calls == gone
                assert not [
                    labels
                    for name, labels, _ in scrape.samples
                    if name == "tailrace_requests_total" and labels["code"][0] == "5"
                ]
                assert scrape.value("streams_cut_total") in (None, 0)
        assert complaints == []
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        left = [line for line in lines if line["ending"] == "client_gone"]
        assert len(left) == gone
        assert len(left) > COUNT // 3
        assert {line["status"] for line in left} == {499}

    run(body(), limit=55)
    ours = [record for record in caplog.records if record.name.startswith("tailrace")]
    assert not [record for record in ours if record.exc_info or record.levelno >= logging.WARNING]
