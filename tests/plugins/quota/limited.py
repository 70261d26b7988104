"""A gateway with limits, callers as tests want them, and prices where money is limited."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
from fakes import CHAT, GOOD, PATH, RawClient, Upstream, answer, gateway, yaml_for
from tailrace.plugins.quota import Quota
from tailrace.proxy.call import Call
from tailrace.proxy.config import setting
from tailrace.proxy.gateway import GatewayProcess
from tailrace.proxy.identity import Identity
from tailrace.proxy.limit import Limit
from tailrace.proxy.plugin import Plugin
from tailrace.proxy.reply import Reply
from tailrace.proxy.tariff import Tariff


@dataclass(frozen=True)
class NoConfig:
    """Nothing."""


class Who(Plugin[NoConfig]):
    """Takes the caller from headers, as a test wants it."""

    Config = NoConfig
    provides = (Identity,)

    async def on_request(self, call: Call) -> Reply | None:
        said = call.head.folded.get(b"x-who")
        if said is not None:
            who = orjson.loads(said)
            limits = tuple(Limit.of_plain(limit) for limit in who.pop("limits", ()))
            call.provide(
                Identity(
                    key=who.get("key", "k"),
                    tenant=who.get("tenant", "t"),
                    tags=tuple(who.get("tags", ())),
                    limits=limits,
                )
            )
        return None


@dataclass(frozen=True)
class Rates:
    """Nano-units for a million tokens of prompt, cached prompt and completion, and for a request."""

    rates: tuple[int, ...] = setting(default=(1_000_000, 1_000_000, 1_000_000, 0), help="prices")


class Priced(Plugin[Rates]):
    """Says what calls cost."""

    Config = Rates
    provides = (Tariff,)

    def __init__(self, config: Rates) -> None:
        super().__init__(config)
        prompt, cached, completion, request = config.rates
        self._tariff = Tariff("EUR", "p1", (prompt, cached, completion, request))

    async def on_request(self, call: Call) -> Reply | None:
        call.provide(self._tariff)
        return None


class Scene:
    """A gateway with limits, its worker and a client."""

    def __init__(self, process: GatewayProcess, upstream: Upstream, client: RawClient) -> None:
        self.process = process
        self.upstream = upstream
        self.client = client
        self.quota: Quota = next(
            link.plugin for link in process.service.chain.pipeline.links if isinstance(link.plugin, Quota)
        )

    async def ask(self, body: dict[str, Any] | None = None, path: str = PATH, **who: Any) -> Any:
        headers = {"x-who": orjson.dumps(who).decode()} if who else {}
        return await self.client.post(path, CHAT if body is None else body, headers)


@asynccontextmanager
async def limited(
    folder: Path, limits: str, script: Any = GOOD, more: str = "", rates: str = ""
) -> AsyncIterator[Scene]:
    priced = f"- limited:Priced: {{rates: {rates}}}\n" if rates else ""
    plugins = f"- limited:Who: {{}}\n{priced}- quota: {{limits: {limits}{more}}}"
    async with (
        Upstream(script) as upstream,
        gateway(yaml_for(upstream, plugins=plugins, more=f"state: {folder}\n")) as process,
        RawClient(process.doors[0].shown) as client,
    ):
        yield Scene(process, upstream, client)


def using(prompt: int, completion: int) -> bytes:
    usage = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    choice = {"index": 0, "message": {"role": "assistant", "content": "x"}, "finish_reason": "stop"}
    return answer(200, orjson.dumps({"id": "c", "choices": [choice], "usage": usage}))
