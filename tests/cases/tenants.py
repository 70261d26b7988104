"""Says who calls by a header that a test sends."""

from __future__ import annotations

from dataclasses import dataclass

from tailrace.proxy.call import Call
from tailrace.proxy.identity import Identity
from tailrace.proxy.plugin import Plugin


@dataclass(frozen=True)
class Config:
    pass


class Tenants(Plugin[Config]):
    Config = Config
    provides = (Identity,)

    def on_open(self, call: Call) -> None:
        tenant = call.head.get(b"x-tenant")
        if tenant is not None:
            call.provide(Identity(key="k-" + tenant.decode(), tenant=tenant.decode()))
