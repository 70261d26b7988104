"""Context in and out: what workers are told of a call's trace, and what its log lines say."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from fakes import CHAT, GOOD, PATH, RawClient, Upstream, gateway, json_answer, run, until, yaml_for
from opentelemetry import trace as api
from tailrace.proxy import logs
from tailrace.proxy.plugin import Plugin
from tailrace.proxy.trace.context import parse
from tailrace.proxy.trace.told import Record

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN = "00f067aa0ba902b7"
GIVEN = {"traceparent": f"00-{TRACE}-{SPAN}-01", "tracestate": "vendor=opaque"}
NOBODY = {"ratio": 0, "slowest": 0}


def chain(**config: Any) -> str:
    return f"[trace: {json.dumps(config)}]"


async def asked(url: str, headers: dict[str, str] | None = None) -> Any:
    async with RawClient(url) as client:
        return await client.post(PATH, CHAT, headers)


def context_of(request: Any) -> tuple[str, str, int]:
    found = parse((request.header("traceparent") or "").encode())
    assert found is not None
    return found


def test_without_the_plugin_a_clients_context_passes_as_it_is() -> None:
    async def body() -> None:
        async with Upstream(GOOD) as upstream, gateway(yaml_for(upstream)) as process:
            await asked(process.doors[0].shown, GIVEN)
            [request] = upstream.requests
            assert {name: request.header(name) for name in GIVEN} == GIVEN

    run(body())


def test_a_worker_is_told_of_the_attempts_own_span_in_the_clients_trace() -> None:
    async def body() -> None:
        async with Upstream(GOOD) as upstream, gateway(yaml_for(upstream, plugins=chain(**NOBODY))) as process:
            await asked(process.doors[0].shown, GIVEN)
            [request] = upstream.requests
            trace_id, span_id, flags = context_of(request)
            assert (trace_id, flags) == (TRACE, 1)
            assert span_id != SPAN
            assert request.header("tracestate") == "vendor=opaque"
            assert request.head.lower().count(b"traceparent:") == 1
            record = Record.of(process.service.ring.all()[0])
            assert record.trace is not None
            assert (record.trace.trace_id, record.trace.parent) == (TRACE, SPAN)
            assert f"{record.trace.spans}01" == span_id

    run(body())


def test_each_attempt_has_its_own() -> None:
    async def body() -> None:
        broken = json_answer({"error": {"message": "no", "code": 500}}, status=500)
        plugins = f"- trace: {json.dumps(NOBODY)}\n- retry: {{back_off: 1ms}}\n"
        async with Upstream(broken, GOOD) as upstream, gateway(yaml_for(upstream, plugins=plugins)) as process:
            await asked(process.doors[0].shown, GIVEN)
            one, other = map(context_of, upstream.requests)
            assert one[0] == other[0] == TRACE
            assert int(other[1], 16) == int(one[1], 16) + 1

    run(body())


@pytest.mark.parametrize("given", ["nonsense", f"00-{'0' * 32}-{SPAN}-01", f"00-{TRACE}-{SPAN}-01-x"])
def test_a_context_that_is_none_is_replaced_with_its_state(given: str) -> None:
    async def body() -> None:
        async with Upstream(GOOD) as upstream, gateway(yaml_for(upstream, plugins=chain(**NOBODY))) as process:
            await asked(process.doors[0].shown, {"traceparent": given, "tracestate": "vendor=opaque"})
            [request] = upstream.requests
            trace_id, _, flags = context_of(request)
            assert trace_id != TRACE
            assert flags == 0
            assert request.header("tracestate") is None
            assert request.head.lower().count(b"traceparent:") == 1

    run(body())


def test_of_two_contexts_none_counts() -> None:
    async def body() -> None:
        async with Upstream(GOOD) as upstream, gateway(yaml_for(upstream, plugins=chain(**NOBODY))) as process:
            async with RawClient(process.doors[0].shown) as client:
                twice = b"".join(b"traceparent: 00-%b-%b-01\r\n" % (TRACE.encode(), SPAN.encode()) for _ in range(2))
                body = json.dumps(CHAT).encode()
                await client.send(
                    b"POST %b HTTP/1.1\r\nhost: g\r\ncontent-type: application/json\r\n%bcontent-length: %d\r\n\r\n%b"
                    % (PATH.encode(), twice, len(body), body)
                )
                await client.read_answer()
            assert context_of(upstream.requests[0])[0] != TRACE

    run(body())


@pytest.mark.parametrize(("ratio", "flag"), [(0, 0), (1, 1)])
def test_without_a_client_to_decide_the_ratio_does(ratio: float, flag: int) -> None:
    async def body() -> None:
        async with Upstream(GOOD) as upstream, gateway(yaml_for(upstream, plugins=chain(ratio=ratio))) as process:
            for _ in range(5):
                await asked(process.doors[0].shown)
            contexts = [context_of(request) for request in upstream.requests]
            assert {flags for _, _, flags in contexts} == {flag}
            assert len({trace_id for trace_id, _, _ in contexts}) == 5

    run(body())


@pytest.mark.parametrize(("parents", "flags"), [("follow", 1), ("ignore", 0)])
def test_whether_a_client_decides_can_be_said(parents: str, flags: int) -> None:
    async def body() -> None:
        plugins = chain(**NOBODY, parents=parents)
        async with Upstream(GOOD) as upstream, gateway(yaml_for(upstream, plugins=plugins)) as process:
            await asked(process.doors[0].shown, GIVEN)
            assert context_of(upstream.requests[0])[::2] == (TRACE, flags)

    run(body())


def test_log_lines_of_a_call_name_its_request_and_its_trace(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root, ours = logging.getLogger(), logging.getLogger("tailrace")
    before = root.handlers[:], root.level, ours.level
    monkeypatch.setenv(logs.VARIABLE, "info")
    logs.configure("gateway[0]")
    file = tmp_path / "access.log"

    async def body() -> str:
        plugins = f"- trace: {{}}\n- access_log: {{file: '{file}'}}\n- {__name__}:Talker: {{}}\n"
        async with Upstream(GOOD) as upstream, gateway(yaml_for(upstream, plugins=plugins)) as process:
            answer = await asked(process.doors[0].shown, GIVEN)
            await until(lambda: file.exists() and file.read_text().endswith("\n"))
            return str(answer.header("x-request-id"))

    try:
        name = run(body())
    finally:
        root.handlers[:], root.level = before[0], before[1]
        ours.setLevel(before[2])
    lines = [line for line in capsys.readouterr().err.splitlines() if "talks" in line]
    assert lines[0].endswith(f"the plugin talks [request {name}, trace {TRACE}]")
    assert lines[1].endswith(f"the plugin talks of {name} [trace {TRACE}]")
    line = json.loads(file.read_text())
    assert (line["request_id"], line["trace_id"]) == (name, TRACE)


def test_what_plugins_do_outside_goes_on_with_the_trace_of_a_sampled_call() -> None:
    async def body() -> None:
        plugins = f"- trace: {json.dumps(NOBODY)}\n- {__name__}:Talker: {{}}\n"
        async with Upstream(GOOD) as upstream, gateway(yaml_for(upstream, plugins=plugins)) as process:
            talker = process.service.chain.pipeline.links[1].plugin
            await asked(process.doors[0].shown, GIVEN)
            await asked(process.doors[0].shown)
            seen = [Record.of(raw).trace for raw in process.service.ring.all()]
            assert seen[0] is not None
            assert talker.seen == [(int(TRACE, 16), int(f"{seen[0].spans}00", 16)), (0, 0)]
            assert api.get_current_span().get_span_context().trace_id == 0

    run(body())


@dataclass(frozen=True)
class Config:
    pass


class Talker(Plugin[Config]):
    """Writes to the log, and looks at what OpenTelemetry takes for the current span."""

    Config = Config

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.seen: list[tuple[int, int]] = []

    async def on_request(self, call: Any) -> None:
        log = logging.getLogger("tailrace")
        log.info("the plugin talks")
        log.info("the plugin talks of %s", call.id)
        span = api.get_current_span().get_span_context()
        self.seen.append((span.trace_id, span.span_id))
