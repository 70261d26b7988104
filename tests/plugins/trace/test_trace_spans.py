"""What a collector is given: spans with the ids that workers were told, and times that fit into one another."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from collector import CLIENT, ERROR, INTERNAL, SERVER, Collector, collector
from fakes import (
    CHAT,
    GOOD,
    PATH,
    RawClient,
    Upstream,
    gateway,
    json_answer,
    run,
    sse_answer,
    stream_of,
    yaml_for,
)
from tailrace.proxy.plugin import Plugin

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN = "00f067aa0ba902b7"
GIVEN = {"traceparent": f"00-{TRACE}-{SPAN}-01"}
STREAM = {**CHAT, "stream": True}
BROKEN = json_answer({"error": {"message": "no", "code": 500}}, status=500)


def chain(to: Collector, more: str = "", **config: Any) -> str:
    return f"- trace: {json.dumps({'endpoint': to.url, 'ratio': 0, 'slowest': 0, **config})}\n{more}"


async def asked(process: Any, body: Any = CHAT, headers: dict[str, str] | None = None) -> Any:
    async with RawClient(process.doors[0].shown) as client:
        return await client.post(PATH, body, headers)


def test_a_call_and_its_attempt() -> None:
    async def body() -> None:
        async with collector() as to, Upstream(sse_answer(stream_of(["a", "b"]))) as upstream:
            plugins = chain(to, headers={"x-key": "let-me-in"}, service="front")
            async with gateway(yaml_for(upstream, plugins=plugins)) as process:
                answer = await asked(process, STREAM, GIVEN)
                [root] = await to.roots(1)
                assert (root.name, root.kind, root.status) == (f"POST {PATH}", SERVER, 0)
                assert (root.trace_id, root.parent) == (TRACE, SPAN)
                said = root.attributes
                assert said["tailrace.request_id"] == answer.header("x-request-id")
                assert (said["http.route"], said["http.response.status_code"]) == (PATH, 200)
                assert (said["gen_ai.operation.name"], said["gen_ai.request.model"]) == ("chat", "m")
                assert said["tailrace.kept_for"] == "sampled"
                [attempt] = to.attempts(root)
                told = (upstream.requests[0].header("traceparent") or "").split("-")
                assert (attempt.trace_id, attempt.span_id) == (told[1], told[2])
                assert (attempt.name, attempt.kind, attempt.events) == ("chat m", CLIENT, ("first_token",))
                port = int(upstream.url.rpartition(":")[2])
                assert (attempt.attributes["server.address"], attempt.attributes["server.port"]) == ("127.0.0.1", port)
                assert attempt.attributes["gen_ai.provider.name"] == "vllm"
                assert attempt.attributes["gen_ai.response.time_to_first_chunk"] > 0
                assert root.began <= attempt.began <= attempt.ended <= root.ended
                rest = {span.name: span for span in to.of(root) if span.kind == INTERNAL}
                assert {"gateway", "prefill"} <= set(rest)
                assert rest["gateway"].parent == root.span_id
                assert rest["prefill"].parent == attempt.span_id
                assert to.resources[0]["service.name"] == "front"
                assert to.headers[0].header("x-key") == "let-me-in"

    run(body())


def test_a_retry_is_linked_to_what_it_replaces() -> None:
    async def body() -> None:
        async with collector() as to, Upstream(BROKEN, GOOD) as upstream:
            async with gateway(yaml_for(upstream, plugins=chain(to, "- retry: {back_off: 1ms}\n"))) as process:
                await asked(process)
                [root] = await to.roots(1)
                assert root.attributes["tailrace.kept_for"] == "attempts"
                one, other = to.attempts(root)
                assert (one.status, one.attributes["error.type"]) == (ERROR, "http_error")
                assert (other.status, other.attributes["tailrace.attempt.why"]) == (0, "retry")
                assert other.links == (
                    (one.span_id, {"tailrace.link.why": "retry", "tailrace.attempt.outcome": "failed"}),
                )

    run(body())


def test_a_hedge_is_linked_to_what_it_ran_beside() -> None:
    async def never(conn: Any, request: Any) -> None:
        await conn.wait_closed()

    async def body() -> None:
        async with collector() as to, Upstream(never) as slow, Upstream(GOOD) as quick:
            first = f"- {__name__}:Patient: {{first: '{slow.url}'}}\n"
            async with gateway(yaml_for(slow, quick, plugins=chain(to, first))) as process:
                assert (await asked(process)).status == 200
                [root] = await to.roots(1)
                one, other = to.attempts(root)
                ends = [span.attributes["tailrace.attempt.outcome"] for span in (one, other)]
                assert ends == ["cancelled", "won"]
                assert other.links == (
                    (one.span_id, {"tailrace.link.why": "hedge", "tailrace.attempt.outcome": "cancelled"}),
                )
                assert one.began < other.began < one.ended
                assert (root.status, one.status, other.status) == (0, 0, 0)

    run(body())


@dataclass(frozen=True)
class Config:
    first: str


class Patient(Plugin[Config]):
    """Asks one worker first, and another one soon."""

    Config = Config

    def score_workers(self, call: Any, candidates: Sequence[Any]) -> Sequence[float]:
        return [float(worker.name == self.config.first) for worker in candidates]

    def patience(self, call: Any, tries: Sequence[Any]) -> float:
        return 0.02


def test_an_error_is_told_by_its_kind_and_nothing_more() -> None:
    async def body() -> None:
        async with collector() as to:
            async with gateway(yaml_for("http://127.0.0.1:1", plugins=chain(to))) as process:
                await asked(process)
                [root] = await to.roots(1)
                assert (root.status, root.attributes["http.response.status_code"]) == (ERROR, 503)
                assert root.attributes["tailrace.fault.whose"] == "network"
                assert root.attributes["tailrace.kept_for"] == "error"

    run(body())


def test_what_is_not_kept_is_not_sent() -> None:
    async def body() -> None:
        async with collector() as to, Upstream(GOOD, GOOD, BROKEN) as upstream:
            async with gateway(yaml_for(upstream, plugins=chain(to))) as process:
                for _ in range(3):
                    await asked(process)
                [root] = await to.roots(1)
                assert root.attributes["http.response.status_code"] == 500
            assert len(await to.roots(1)) == 1

    run(body())


def test_the_last_ones_are_delivered_when_it_ends() -> None:
    async def body() -> None:
        async with collector() as to, Upstream(GOOD) as upstream:
            async with gateway(yaml_for(upstream, plugins=chain(to, ratio=1))) as process:
                for _ in range(30):
                    await asked(process)
            assert len(await to.roots(30)) == 30

    run(body())
