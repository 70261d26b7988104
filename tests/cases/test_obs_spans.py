"""OBS: spans of streams, however they end, and hundreds of them at once."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Any

import orjson
import pytest
from collector import ERROR, collector
from fakes import CHAT, PATH, RawClient, Upstream, chat_chunk, chunked, event, gateway, run, sse_head, until, yaml_for
from opentelemetry import trace as api
from tailrace.proxy.plugin import Plugin
from tailrace.proxy.trace.context import CURRENT, parse

STREAM = {**CHAT, "stream": True}
WAYS = ("completion", "abort", "idle", "exception")
OUTCOMES = {"completion": "completed", "abort": "client_gone", "idle": "upstream_lost", "exception": "failed"}
COUNT = 200


async def worker(conn: Any, request: Any) -> None:
    """Streams slowly enough for all to run side by side."""
    way = request.header("x-way")
    await conn.send(sse_head())
    for number in range(6):
        await conn.send(chunked(chat_chunk(f"{number}")))
        await asyncio.sleep(0.01)
    if way == "completion":
        await conn.send(chunked(chat_chunk(finish="stop")) + chunked(event("[DONE]")) + b"0\r\n\r\n")
    else:
        await conn.wait_closed()


@dataclass(frozen=True)
class Config:
    pass


class Looking(Plugin[Config]):
    """Looks at whose trace is the current one wherever code of plugins runs; fails where a call asks for it."""

    Config = Config

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.wrong: list[str] = []
        self.looked = 0

    def look(self, call: Any, where: str) -> None:
        self.looked += 1
        current, span = CURRENT.get(), api.get_current_span().get_span_context()
        if current is not call.trace or span.span_id != int(call.trace.span_id(), 16):
            self.wrong.append(f"{where} of {call.id}")

    async def on_request(self, call: Any) -> None:
        self.look(call, "on_request")
        await asyncio.sleep(0.001)
        self.look(call, "on_request after a wait")

    def on_chosen(self, call: Any, attempt: Any) -> bool:
        self.look(call, "on_chosen")
        return True

    def on_stream(self, call: Any, head: Any) -> Any:
        return Tap(self, call)

    def on_complete(self, call: Any, outcome: Any) -> None:
        self.look(call, "on_complete")


class Tap:
    def __init__(self, plugin: Looking, call: Any) -> None:
        self.plugin, self.call = plugin, call
        self.fed = 0

    def feed(self, data: bytes) -> None:
        self.plugin.look(self.call, "tap")
        self.fed += 1
        if self.fed > 3 and self.call.head.get(b"x-way") == b"exception":
            raise RuntimeError("the tap fails")

    def finish(self, outcome: Any) -> None:
        self.plugin.look(self.call, "the tap's end")


async def one(url: str, number: int) -> tuple[str, str]:
    """One stream in its own way; the way, and the span that its client named as its parent."""
    way, span = WAYS[number % len(WAYS)], f"{number + 1:016x}"
    headers = {"x-way": way, "traceparent": f"00-{number + 1:032x}-{span}-01"}
    async with RawClient(url) as client:
        if way == "abort":
            await client.request("POST", PATH, orjson.dumps(STREAM), headers)
            await client.read_until(b"data:")
        else:
            await client.post(PATH, STREAM, headers)
    return way, span


def test_OBS_07_span_context_in_streams(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)

    async def body() -> None:
        async with collector() as to, Upstream(worker) as upstream:
            plugins = f"- trace: {{endpoint: '{to.url}', ratio: 0, rate: 1000}}\n- {__name__}:Looking: {{}}\n"
            more = "timeouts: {gap: 1.0}\nheartbeat: 0\n"
            async with gateway(yaml_for(upstream, plugins=plugins, more=more)) as process:
                looking = process.service.chain.pipeline.links[1].plugin
                url = process.doors[0].shown
                done = await asyncio.gather(*(one(url, number) for number in range(COUNT)))
                await until(lambda: not process.service.active)
                roots = await to.roots(COUNT)
                assert looking.looked > 5 * COUNT
                assert looking.wrong == []
                assert CURRENT.get() is None
                assert not api.get_current_span().get_span_context().is_valid
            await asyncio.sleep(0)
            assert len(to.spans) == len({span.span_id for span in to.spans})
            ways = {span: way for way, span in done}
            assert sorted(root.parent for root in roots) == sorted(ways)
            for root in roots:
                way = ways[root.parent]
                assert root.attributes["tailrace.outcome"] == OUTCOMES[way], way
                assert (root.status == ERROR) is (way in ("idle", "exception"))
                assert root.ended >= root.began
                assert root.trace_id == f"{int(root.parent, 16):032x}"
            asked = [parse((request.header("traceparent") or "").encode()) for request in upstream.requests]
            attempts = {(span.trace_id, span.span_id) for root in roots for span in to.attempts(root)}
            told = {found[:2] for found in asked if found is not None}
            # A further attempt may have met a connection that was closed already, and is begun anew.
            assert told <= attempts
            assert len(told) == COUNT

    run(body(), limit=55)
    assert "detach" not in caplog.text.lower()
    assert "different Context" not in caplog.text


def test_OBS_07_nothing_of_a_trace_stays_in_a_pooled_connection() -> None:
    """A connection that a traced call opened serves one that is not, and its callbacks run in nobody's context."""

    async def body() -> None:
        async with Upstream(worker) as upstream:
            plugins = "- trace: {ratio: 0}\n  when: {stream: true}\n"
            async with gateway(yaml_for(upstream, plugins=plugins)) as process:
                async with RawClient(process.doors[0].shown) as client:
                    await client.post(PATH, STREAM, {"x-way": "completion"})
                    given = {"traceparent": f"00-{9:032x}-{9:016x}-00"}
                    await client.request("POST", "/v1/embeddings", orjson.dumps({"model": "m", "input": "x"}), given)
                    await until(lambda: len(upstream.requests) == 2)
                first, second = upstream.requests
                assert second.header("traceparent") == given["traceparent"]
                assert first.header("traceparent") != given["traceparent"]

    run(body())
