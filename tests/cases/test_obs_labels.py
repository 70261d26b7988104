"""OBS: tenants and keys are no labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fakes import CHAT, GOOD, run
from tailrace.proxy.identity import Identity
from tailrace.proxy.plugin import Plugin
from tailrace.proxy.reply import Reply

from cases.scene import PATH, WITNESS, scene
from cases.test_obs import flood, metrics_of, post, series_of

CHAIN = WITNESS.removesuffix("]") + ", 'cases.test_obs_labels:Tenants', trace: {ratio: 0}]"


@dataclass(frozen=True)
class Config:
    pass


class Tenants(Plugin[Config]):
    """Whoever a header names has sent the call; some get their answer here."""

    Config = Config
    provides = (Identity,)

    def on_request(self, call: Any) -> Reply | None:
        tenant = call.head.get(b"x-tenant").decode()
        call.provide(Identity(key=f"key-{tenant}", tenant=tenant, tags=(f"tag-{tenant}",)))
        return Reply(200, b"{}") if call.head.get(b"x-here") else None


def test_OBS_03_tenant_and_key_labels() -> None:
    def of(number: int, more: bytes = b"") -> bytes:
        return post(PATH, CHAT, b"x-tenant: tenant-%d\r\n%b" % (number, more))

    async def body() -> None:
        async with scene(GOOD, plugins=CHAIN) as s:
            await flood(s.url, [of(0), of(1, b"x-here: 1\r\n")], connections=1)
            before = series_of(metrics_of(s))
            await flood(s.url, [of(number) for number in range(2000)])
            await flood(s.url, [of(number, b"x-here: 1\r\n") for number in range(50_000)])
            text = metrics_of(s)
            assert series_of(text) == before
            assert "tenant-" not in text
            assert "tag-" not in text
            s.witness.calls.clear()
            s.witness.outcomes.clear()

    run(body(), limit=58)
