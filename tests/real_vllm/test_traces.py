"""A real vLLM's own span hangs under the attempt that a gateway made: one trace from the client to the engine."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from collector import CLIENT, Collector, Got, collector
from fakes import decoded, until
from sidecars import KEY as HOP
from sidecars import url_of, worker_settings
from tailrace.proxy.gateway import running as gateway_running
from tailrace.proxy.testing.client import RawClient
from tailrace.worker.sidecar import running as sidecar_running

from real_vllm.engines import KEY, Engines, Vllm
from real_vllm.scene import CHAT, HELLO, run

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
GIVEN = {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"}
ASKED = {"model": "tiny", "messages": HELLO, "max_tokens": 8, "stream": True}


def traced(engines: Engines, to: Collector, monkeypatch: pytest.MonkeyPatch) -> Vllm:
    """An engine that says what it does to a collector, as soon as it can."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/protobuf")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "200")
    return engines.running("--otlp-traces-endpoint", f"{to.url}/v1/traces")


async def engines_own(to: Collector, count: int) -> list[Got]:
    def found() -> list[Got]:
        return [span for span in to.spans if span.name == "llm_request" and span.trace_id == TRACE]

    await until(lambda: len(found()) >= count, lambda: f"the engine's span did not come: {to.spans}", 60)
    return found()


async def ask(url: str, headers: dict[str, str] | None = GIVEN) -> Any:
    async with RawClient(url) as client:
        return await client.post(CHAT, ASKED, headers)


def test_the_engines_span_is_a_child_of_the_attempt(engines: Engines, monkeypatch: pytest.MonkeyPatch) -> None:
    async def body() -> None:
        async with collector() as to:
            engine = await asyncio.to_thread(traced, engines, to, monkeypatch)
            # Directly, and through a sidecar that makes spans of its own.
            trace = f"[trace: {{endpoint: '{to.url}', ratio: 0, slowest: 0}}]"
            pools = f"pools: {{real: {{workers: ['{engine.url}'], api_key: {KEY}}}}}\n"
            pools += "models: {tiny: {pool: real}}\n"
            yaml = f"listen: [127.0.0.1:0]\n{pools}plugins: {trace}\n"
            async with gateway_running(decoded(yaml)) as front:
                assert (await ask(url_of(front))).status == 200
                [root] = await to.roots(1)
                [attempt] = to.attempts(root)
                [own] = await engines_own(to, 1)
                assert (own.trace_id, own.parent) == (TRACE, attempt.span_id)
                assert attempt.began <= own.began <= own.ended
                assert own.attributes["gen_ai.usage.completion_tokens"] == 8
            to.spans.clear()
            more = f"hop_key: {HOP}\nplugins: {trace}\n"
            url = f"{{url: '{engine.url}', api_key: {KEY}}}"
            async with sidecar_running(worker_settings(url, more)) as side:
                await until(lambda: side.report.takes_calls, limit=120)
                models = f"models: {{tiny: {{workers: ['{url_of(side)}']}}}}\n"
                yaml = f"listen: [127.0.0.1:0]\nhop_key: {HOP}\n{models}plugins: {trace}\n"
                async with gateway_running(decoded(yaml), watching=True) as front:
                    (worker,) = front.workers()
                    await until(lambda: side.feed.subscribers == 1 and worker.eligible, limit=60)
                    assert (await ask(url_of(front))).status == 200
                    roots = {root.parent: root for root in await to.roots(2)}
                    front_root = roots["00f067aa0ba902b7"]
                    [attempt] = to.attempts(front_root)
                    beside = roots[attempt.span_id]
                    [inner] = [s for s in to.spans if s.kind == CLIENT and s.parent == beside.span_id]
                    [own] = await engines_own(to, 1)
                    assert own.parent == inner.span_id
                    assert {own.trace_id, beside.trace_id, front_root.trace_id} == {TRACE}

    run(body(), limit=500)
