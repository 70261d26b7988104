"""A fleet of bare engines and a gateway that watches what a list of sources stands for, for cases of routing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fakes import CHAT, GOOD, PATH, Connection, RawClient, Request, Upstream, answer, decoded, json_answer
from tailrace.proxy.gateway import GatewayProcess, running
from tailrace.proxy.watch.feed import PATH as FEED

MODEL = {**CHAT, "model": "m"}


class Engine(Upstream):
    """A bare engine; `load` is what its metrics say, None for silence, and `probed` is what it answers probes."""

    def __init__(self, *, host: str = "127.0.0.1", port: int = 0, load: tuple[int, int] | None = (0, 0)) -> None:
        super().__init__(self._answer, port=port)
        self.host = host
        self.load = load
        self.probed = json_answer({"data": [{"id": "m", "parent": None}]})
        self.hold: asyncio.Event | None = None
        self.served = 0

    async def __aenter__(self) -> Engine:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: Connection(self), self.host, self._port)
        self._port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://{self.host}:{self._port}"
        return self

    @property
    def port(self) -> int:
        return self._port

    async def _answer(self, conn: Connection, request: Request) -> None:
        if request.method == "POST":
            self.served += 1
            if self.hold is not None:
                await self.hold.wait()
            await conn.send(GOOD)
        elif request.target == FEED:
            await conn.send(json_answer({}, 404))
        elif request.target.startswith("/metrics"):
            await (conn.wait_closed() if self.load is None else conn.send(self._metrics()))
        else:
            await conn.send(self.probed)

    def _metrics(self) -> bytes:
        assert self.load is not None
        running, waiting = self.load
        text = f"vllm:num_requests_running {running}\nvllm:num_requests_waiting {waiting}\n"
        return answer(200, text.encode(), content_type="text/plain")


@asynccontextmanager
async def fleet(workers: str, more: str = "") -> AsyncIterator[GatewayProcess]:
    """A gateway that watches what `workers`, a YAML list, stands for."""
    yaml = f"listen: [127.0.0.1:0]\nmodels: {{m: {{pool: p}}}}\npools: {{p: {{workers: {workers}}}}}\n{more}"
    async with running(decoded(yaml), watching=True) as process:
        yield process


def members(process: GatewayProcess) -> list[str]:
    return [worker.name for worker in process.pools["p"].workers]


def takers(process: GatewayProcess) -> list[str]:
    return [worker.name for worker in process.pools["p"].eligible]


async def ask(process: GatewayProcess, count: int = 1) -> None:
    """So many calls, all served."""
    async with RawClient(process.doors[0].shown) as client:
        for _ in range(count):
            assert (await client.post(PATH, MODEL)).status == 200
