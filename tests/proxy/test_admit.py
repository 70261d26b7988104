"""The admit phase: budgets, what a failure means, and waits that do not count."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
from fakes import RawClient, Upstream, gateway, json_answer, run, yaml_for
from tailrace.proxy.call import Call
from tailrace.proxy.fault import Reject
from tailrace.proxy.plugin import Plugin
from tailrace.proxy.reply import Reply


@dataclass(frozen=True, slots=True, kw_only=True)
class Nothing:
    """No settings."""


class Slow(Plugin[Nothing]):
    """Edits the request, then hangs."""

    Config: ClassVar[type] = Nothing

    async def on_request(self, call: Call) -> Reply | None:
        call.edit("edited", b"true")
        await asyncio.sleep(30)
        return None


class Queued(Slow):
    """Waits in a queue for longer than its budget."""

    async def on_request(self, call: Call) -> Reply | None:
        async with call.waiting():
            await asyncio.sleep(0.3)
        assert call.waited_ns >= 290_000_000
        return None


class Revoked(Queued):
    """Is refused when it leaves the queue."""

    def recheck(self, call: Call) -> None:
        raise Reject(403, "revoked", "Revoked meanwhile.")


class Broken(Slow):
    """Raises."""

    async def on_request(self, call: Call) -> Reply | None:
        call.edit("edited", b"true")
        raise ValueError("secret detail")


def asked(plugin: str) -> tuple[int, Any, list[Any]]:
    """Status, body, and the bodies that the worker saw."""

    async def main() -> tuple[int, Any, list[Any]]:
        async with Upstream(json_answer({"choices": []})) as upstream:
            async with gateway(yaml_for(upstream, plugins=f"- {plugin}")) as process:
                async with RawClient(process.doors[0].shown) as client:
                    got = await client.post("/v1/chat/completions", {"model": "m"})
                    return got.status, got.json(), [json.loads(request.body) for request in upstream.requests]

    return run(main())


def test_a_plugin_that_takes_too_long_refuses_the_call() -> None:
    status, body, seen = asked('{"test_admit:Slow": {}, budget_ms: 50}')
    assert (status, body["error"]["code"], seen) == (503, "plugin_unavailable", [])
    assert "took too long" in body["error"]["message"]
    assert "Slow" not in body["error"]["message"]


@pytest.mark.parametrize("plugin", ["Slow", "Broken"])
def test_with_on_error_open_the_call_passes_without_its_edits(plugin: str) -> None:
    status, _, seen = asked(f'{{"test_admit:{plugin}": {{}}, budget_ms: 50, on_error: open}}')
    assert (status, seen) == (200, [{"model": "m"}])


@pytest.mark.parametrize("terms", ["", ", budget_ms: 60000", ", on_error: closed"])
def test_a_plugin_that_raises_is_a_503_that_tells_nothing(terms: str) -> None:
    status, body, seen = asked(f'{{"test_admit:Broken": {{}}{terms}}}')
    assert (status, body["error"]["code"], seen) == (503, "plugin_unavailable", [])
    told = json.dumps(body)
    assert not any(word in told for word in ("secret", "Broken", "ValueError"))


def test_a_wait_in_a_queue_does_not_use_up_the_budget() -> None:
    status, _, seen = asked('{"test_admit:Queued": {}, budget_ms: 100}')
    assert (status, len(seen)) == (200, 1)


def test_a_call_is_checked_again_when_it_leaves_a_queue() -> None:
    status, body, seen = asked('{"test_admit:Revoked": {}}')
    assert (status, body["error"]["code"], seen) == (403, "revoked", [])
