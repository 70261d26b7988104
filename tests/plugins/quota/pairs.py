"""Two gateways, each a host of its own, with one real Valkey."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from fakes import CHAT, GOOD, PATH, RawClient, Upstream, gateway, until, yaml_for
from tailrace.plugins.quota import Quota
from tailrace.plugins.quota.part import Part
from valkeys import Valkey, valkey


class Pair:
    """Two gateways, each a host of its own, with one store."""

    def __init__(self, processes: list[Any], store: Valkey) -> None:
        self.processes = processes
        self.store = store
        self._next = 0

    async def calls(self, count: int, at_once: int = 8) -> Counter[int]:
        """The statuses of so many calls, to each gateway in turn."""
        left = iter(range(count))
        seen: Counter[int] = Counter()

        async def caller(process: Any) -> None:
            async with RawClient(process.doors[0].shown) as client:
                for _ in left:
                    seen[(await client.post(PATH, CHAT)).status] += 1

        await asyncio.gather(*(caller(self.processes[number % 2]) for number in range(at_once)))
        return seen

    def parts(self) -> list[Part]:
        return [process._host._parts["quota"][1] for process in self.processes]

    def quotas(self) -> list[Quota]:
        return [
            link.plugin
            for process in self.processes
            for link in process.service.chain.pipeline.links
            if isinstance(link.plugin, Quota)
        ]

    async def up(self, *, up: bool = True) -> None:
        await until(lambda: all(part._store.up is up for part in self.parts()), "the store's state was not noticed")  # type: ignore[union-attr]


@asynccontextmanager
async def pair(
    folder: Path, limits: str, unknown: str = "closed", *, price: str = "", more: str = "", acl: str = ""
) -> AsyncIterator[Pair]:
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(valkey(folder))
        if acl:
            await store.command("ACL", "SETUSER", "default", acl)
        upstream = await stack.enter_async_context(Upstream(GOOD))
        processes = []
        for name in "ab":
            config = f"{{limits: {limits}, unknown: {unknown}, store: {{url: '{store.url}', wait_ms: 50}}{more}}}"
            priced = f"- limited:Priced: {{rates: [0, 0, 0, {price}]}}\n" if price else ""
            yaml = yaml_for(upstream, plugins=f"{priced}- quota: {config}", more=f"state: {folder / name}\n")
            processes.append(await stack.enter_async_context(gateway(yaml)))
        pair = Pair(processes, store)
        await pair.up()
        yield pair
