"""A gateway behind given listeners, and a client of it."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from contextlib import asynccontextmanager

from fakes import CHAT, GOOD, PATH, RawClient, Upstream, gateway, until, yaml_for
from scrape import Scrape
from tailrace.proxy.gateway import GatewayProcess

PROXIED = b"PROXY TCP4 1.2.3.4 10.0.0.1 1000 443\r\n"


@asynccontextmanager
async def listening(listen: str, more: str = ""):
    """A gateway with these listeners, its worker, and a function that tells the faults so far."""
    async with Upstream(GOOD) as upstream:
        yaml = yaml_for(upstream, more=more).replace("listen: [127.0.0.1:0]", f"listen: {listen}")
        async with gateway(yaml) as process:
            yield process, upstream, lambda: faults_of(process)


def faults_of(process: GatewayProcess) -> list[str]:
    """The kind of every fault that the metrics count."""
    samples = Scrape(process).samples
    faults = [(labels["kind"], int(count)) for name, labels, count in samples if name == "tailrace_faults_total"]
    return [kind for kind, count in faults for _ in range(count)]


async def asked(url: str, *, first: bytes = b"", tls: ssl.SSLContext | None = None) -> int:
    async with RawClient(url, tls=tls) as client:
        await client.send(first)
        return (await client.post(PATH, CHAT)).status


async def counted(faults: Callable[[], list[str]], count: int) -> list[str]:
    """The faults, once there are so many."""
    await until(lambda: len(faults()) >= count, "the faults")
    return faults()
