"""Gateways that watch their workers, for the tests of this folder."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
from fakes import Connection, RawClient, Request, chunked, decoded
from sidecars import CHAT, HELLO, url_of
from tailrace.proxy.fleet import Worker
from tailrace.proxy.gateway import GatewayProcess, running
from tailrace.proxy.watch.feed import PATH


def yaml(*urls: str, more: str = "", model: str = "tiny") -> str:
    listed = ", ".join(f"'{url}'" for url in urls)
    return f"listen: [127.0.0.1:0]\nmodels: {{{model}: {{pool: all}}}}\npools: {{all: {{workers: [{listed}]}}}}\n{more}"


@asynccontextmanager
async def watching(*urls: str, more: str = "") -> AsyncIterator[GatewayProcess]:
    async with running(decoded(yaml(*urls, more=more)), watching=True) as process:
        yield process


def worker_of(process: GatewayProcess, index: int = 0) -> Worker:
    return list(process.workers())[index]


async def chat(process: GatewayProcess, **fields: Any) -> Any:
    async with RawClient(url_of(process)) as client:
        return await client.post(CHAT, HELLO | fields)


def state(**fields: Any) -> bytes:
    told = {"ready": True, "draining": False, "dead": False, "reason": "", "running": 0, "waiting": 0, "kv_use": 0.0}
    return orjson.dumps(told | fields) + b"\n"


FEED_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\ntransfer-encoding: chunked\r\n\r\n"


def feeding(*lines: bytes, then: Any = None):
    """A script that serves a feed of these lines, each in a chunk, and then goes on as told or keeps silent."""

    async def script(conn: Connection, request: Request) -> None:
        assert request.target == PATH
        await conn.send(FEED_HEAD)
        for line in lines:
            await conn.send(chunked(line))
        await (then(conn) if then is not None else conn.wait_closed())

    return script
