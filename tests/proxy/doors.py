"""A gateway behind given listeners, and a client of it."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import asynccontextmanager

from fakes import RawClient, Upstream, chat_answer, gateway, json_answer, yaml_for

PATH = "/v1/chat/completions"
CHAT = {"model": "m", "messages": []}
PROXIED = b"PROXY TCP4 1.2.3.4 10.0.0.1 1000 443\r\n"


@asynccontextmanager
async def listening(listen: str, more: str = ""):
    """A gateway with these listeners, its worker, and the faults of connections that never came to a request."""
    async with Upstream(json_answer(chat_answer("hi"))) as upstream:
        yaml = yaml_for(upstream, more=more).replace("listen: [127.0.0.1:0]", f"listen: {listen}")
        async with gateway(yaml) as process:
            faults: list[str] = []
            process.service.refused = lambda fault: faults.append(fault.kind)
            yield process, upstream, faults


async def asked(url: str, *, first: bytes = b"", tls: ssl.SSLContext | None = None) -> int:
    async with RawClient(url, tls=tls) as client:
        await client.send(first)
        return (await client.post(PATH, CHAT)).status


async def emptied(faults: list[str], count: int) -> list[str]:
    while len(faults) < count:
        await asyncio.sleep(0.005)
    return faults
