"""OpenMetrics for who asks for it, with exemplars that lead to traces; real Prometheus reads both formats."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import socket
import subprocess
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from fakes import CHAT, PATH, RawClient, Upstream, run, sse_answer, stream_of, yaml_for
from served import QUICK, Served, engine, serving
from tailrace.proxy.admin.negotiation import wants_open_metrics
from tailrace.proxy.metrics import Segment, Totals, render
from tailrace.proxy.metrics.exemplars import latest
from tailrace.proxy.metrics.family import counter, histogram
from tailrace.proxy.metrics.register import Register

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
GIVEN = {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"}
OPEN = {"accept": "application/openmetrics-text"}
PROMTOOL, PROMETHEUS = shutil.which("promtool"), shutil.which("prometheus")
EXEMPLAR = re.compile(r'(\w+_bucket)\{[^}]*le="([^"]+)"\} \d+ # \{trace_id="(\w{32})"\} (\S+) (\d+\.\d{3})\Z')


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        ("", False),
        ("*/*", False),
        ("text/plain", False),
        ("application/openmetrics-text", True),
        ("application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.2", True),
        ("application/openmetrics-text;q=0.2, text/plain", False),
        ("application/openmetrics-text;q=0", False),
        ("application/openmetrics-text;q=nonsense", False),
        ("Application/OpenMetrics-Text ; Q=1", True),
    ],
)
def test_only_who_prefers_it_gets_it(accept: str, wanted: bool) -> None:
    assert wants_open_metrics(accept) is wanted


def test_the_text() -> None:
    hits = counter("test_hits_total", 'Hits of "all".', "where")
    times = histogram("test_seconds", "Times.", (0.1, 1.0), "where")
    segment = Segment.create()
    register = Register(segment)
    segment.slots[register.series(hits, ("a",))] += 2
    at = register.series(times, ("a",))
    segment.slots[at + 2] += 1
    text = render([segment], Totals(), {("test_seconds", ("a",), 1): (TRACE, 0.5, 1_800_000_000.25)})
    segment.close()
    lines = [line for line in text.splitlines() if "test_" in line]
    assert lines == [
        '# HELP test_hits Hits of \\"all\\".',
        "# TYPE test_hits counter",
        'test_hits_total{where="a"} 2',
        "# HELP test_seconds Times.",
        "# TYPE test_seconds histogram",
        'test_seconds_bucket{where="a",le="0.1"} 0',
        f'test_seconds_bucket{{where="a",le="1"}} 1 # {{trace_id="{TRACE}"}} 0.5 1800000000.250',
        'test_seconds_bucket{where="a",le="+Inf"} 1',
        'test_seconds_sum{where="a"} 0',
        'test_seconds_count{where="a"} 1',
    ]
    assert text.endswith("\n# EOF\n")


def test_the_latest_of_several_processes_is_shown() -> None:
    place: Any = ["f", ["a"], 1]
    found = latest([[(place, ("one", 1.0, 10.0))], [(place, ("other", 2.0, 20.0))], []])
    assert found == {("f", ("a",), 1): ("other", 2.0, 20.0)}


async def asked(it: Served, count: int = 1) -> None:
    async with RawClient(it.url) as client:
        for _ in range(count):
            await client.post(PATH, {**CHAT, "stream": True}, GIVEN)


def test_an_exemplar_leads_to_the_trace_of_a_call_that_was_kept(tmp_path: Path) -> None:
    async def body() -> None:
        async with Upstream(engine(sse_answer(stream_of(["a"])))) as upstream:
            yaml = yaml_for(upstream, plugins="[trace: {ratio: 0}]", more=QUICK + "processes: 2\n")
            async with serving(tmp_path, yaml) as it:
                await asked(it)
                plain = await it.get("/metrics")
                assert "trace_id" not in plain.body.decode()
                assert "# EOF" not in plain.body.decode()
                opened = await it.get("/metrics", OPEN)
                assert opened.header("content-type") == "application/openmetrics-text; version=1.0.0; charset=utf-8"
                found = [match for line in opened.body.decode().splitlines() if (match := EXEMPLAR.match(line))]
                assert {match[1] for match in found} == {
                    "tailrace_request_duration_seconds_bucket",
                    "tailrace_time_to_first_token_seconds_bucket",
                }
                assert {match[3] for match in found} == {TRACE}
                assert all(float(match[4]) <= float(match[2]) for match in found)
                [call] = (await it.get(f"/admin/traces/{TRACE}")).json()["calls"]
                assert call["trace_id"] == TRACE

    run(body(), limit=40)


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed")
def test_promtool_finds_nothing_to_complain_of(tmp_path: Path) -> None:
    async def body() -> None:
        async with Upstream(engine(sse_answer(stream_of(["a"])))) as upstream:
            prices = tmp_path / "prices.yaml"
            prices.write_text("currency: EUR\nprices: [{model: m, prompt: 1, completion: 2}]\n")
            first = f"trace: {{}}, timing: {{}}, service_class: {{}}, billing: {{prices: {prices}}}"
            limits = "{limits: [{requests: 1000, per: minute}, {tokens: 100000, per: day}]}"
            names = ("cache", "deadline", "admission", "breaker", "hedge", "retry", "rescue", "route", "access_log")
            plugins = f"[{first}, quota: {limits}, {', '.join(f'{name}: {{}}' for name in names)}]"
            more = QUICK + f"state: {tmp_path / 'state'}\n"
            async with serving(tmp_path, yaml_for(upstream, plugins=plugins, more=more)) as it:
                await asked(it, 3)
                await asyncio.sleep(0.6)  # gauges are written twice a second
                text = (await it.get("/metrics")).body
                assert b"tailrace_billing_durable_seconds" in text
                check = await asyncio.create_subprocess_exec(
                    PROMTOOL or "",
                    "check",
                    "metrics",
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                )
                told, _ = await check.communicate(text)
                assert (check.returncode, told.decode()) == (0, "")

    run(body(), limit=40)


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def of_prometheus(port: int, path: str, **query: str) -> Any:
    url = f"http://127.0.0.1:{port}/api/v1/{path}?{urllib.parse.urlencode(query)}"
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return json.loads(answer.read())["data"]
    except OSError:
        return None


@pytest.mark.skipif(PROMETHEUS is None, reason="prometheus is not installed")
def test_a_real_prometheus_has_the_exemplar_of_a_bucket(tmp_path: Path) -> None:
    """It asks for OpenMetrics by itself."""

    async def body() -> None:
        admin, own = free_port(), free_port()
        file = tmp_path / "prometheus.yml"
        file.write_text(
            "global: {scrape_interval: 500ms, scrape_timeout: 400ms}\n"
            f"scrape_configs: [{{job_name: tailrace, static_configs: [{{targets: ['127.0.0.1:{admin}']}}]}}]\n"
        )
        async with Upstream(engine(sse_answer(stream_of(["a"])))) as upstream:
            yaml = yaml_for(upstream, plugins="[trace: {ratio: 0}]", more=f"{QUICK}admin: 127.0.0.1:{admin}\n")
            async with serving(tmp_path, yaml) as it:
                await asked(it)
                prometheus = subprocess.Popen(
                    [PROMETHEUS or "", f"--config.file={file}", f"--web.listen-address=127.0.0.1:{own}",
                     f"--storage.tsdb.path={tmp_path / 'tsdb'}", "--enable-feature=exemplar-storage"],
                    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                )  # fmt: skip
                try:
                    found: Any = []
                    while not found:
                        await asyncio.sleep(0.3)
                        found = await asyncio.to_thread(
                            of_prometheus,
                            own,
                            "query_exemplars",
                            query="tailrace_time_to_first_token_seconds_bucket",
                            start="0",
                            end="9999999999",
                        )
                    assert found[0]["exemplars"][0]["labels"] == {"trace_id": TRACE}
                    up = await asyncio.to_thread(of_prometheus, own, "query", query="tailrace_requests_total")
                    assert up["result"][0]["value"][1] == "1"
                finally:
                    prometheus.kill()
                    prometheus.wait()

    run(body(), limit=50)
