"""What the calls of a gateway leave in its metrics."""

import asyncio
import time
from types import SimpleNamespace

import orjson
import pytest
from fakes import (
    CHAT,
    GOOD,
    PATH,
    RawClient,
    Upstream,
    chat_chunk,
    chunked,
    event,
    gateway,
    json_answer,
    run,
    sse_answer,
    sse_head,
    stream_of,
    until,
    yaml_for,
)
from scrape import Scrape
from tailrace.proxy.fleet import SUSPECT
from tailrace.proxy.metrics import Segment, catalogue
from tailrace.proxy.metrics.calls import CallCounts
from tailrace.proxy.metrics.catalogue import code_of
from tailrace.proxy.metrics.family import Family
from tailrace.proxy.metrics.register import Register
from tailrace.proxy.outcome import AttemptEnd, Ending, Outcome

STREAM = {**CHAT, "stream": True}
GOOD_STREAM = sse_answer(stream_of(["a", "b"]))
BAD = json_answer({"error": {"message": "broken"}}, status=500)
FOR_SUPERVISORS = {"tailrace_process_restarts_total"}
OF_USAGE = {family.name for family in (catalogue.INPUT_TOKENS, catalogue.OUTPUT_TOKENS, catalogue.PER_TOKEN)}


def scraped(*scripts, asks=(), plugins="[]", more=""):
    """The metrics of a gateway after these requests to one scripted worker: (body, path) or a body."""

    async def body():
        async with Upstream(*scripts) as upstream, gateway(yaml_for(upstream, plugins=plugins, more=more)) as process:
            async with RawClient(process.doors[0].shown) as client:
                for ask in asks:
                    await client.post(PATH, ask)
                return Scrape(process)

    return run(body())


def test_every_metric_is_there_after_a_good_and_a_failed_call():
    async def body():
        async with Upstream(GOOD_STREAM, BAD) as upstream:
            yaml = yaml_for(upstream, plugins="[chatty:Broken]")
            async with gateway(yaml) as process, RawClient(process.doors[0].shown) as client:
                await client.post(PATH, STREAM)
                await client.post(PATH, STREAM)
                worker = next(iter(process.workers()))
                standing = worker.standing
                standing.running, standing.waiting, standing.kv_use = 2, 1, 0.25
                worker.bar(SUSPECT)
                worker.sent_after_death = 0.125
                process.watch.suspected(worker, "streams")
                return Scrape(process)

    scrape = run(body())
    shown = {line.split()[2] for line in scrape.text.splitlines() if line.startswith("# TYPE")}
    names = {family.name for family in vars(catalogue).values() if isinstance(family, Family)}
    assert shown == names - FOR_SUPERVISORS - OF_USAGE
    assert scrape.value("worker_running") == 2
    assert scrape.value("worker_waiting") == 1
    assert scrape.value("worker_kv_cache_usage") == 0.25
    assert scrape.value("worker_suspect") == 1
    assert scrape.value("worker_last_sent_after_death_seconds") == 0.125
    assert scrape.value("worker_suspected_total", evidence="streams") == 1


def test_a_good_stream():
    scrape = scraped(GOOD_STREAM, asks=[STREAM, STREAM])
    assert scrape.value("requests_total", route="chat", model="m", outcome="completed", code="200") == 2
    assert scrape.value("time_to_first_token_seconds_count", route="chat", model="m") == 2
    assert scrape.value("request_duration_seconds_count", route="chat", model="m") == 2
    assert scrape.value("gateway_overhead_seconds_count", route="chat") == 2
    assert scrape.value("attempts_total", outcome="won", why="first") == 2
    assert scrape.value("faults_total") is None
    assert scrape.value("streams_cut_total") == scrape.value("client_gone_total") == 0


def test_a_whole_answer_has_no_first_token():
    scrape = scraped(GOOD, asks=[CHAT])
    assert scrape.value("time_to_first_token_seconds_count") is None
    assert scrape.value("request_duration_seconds_count", route="chat", model="m") == 1


def test_a_failed_call_has_a_duration_but_no_first_token():
    scrape = scraped(BAD, asks=[STREAM])
    assert scrape.value("requests_total", outcome="failed", code="500") == 1
    assert scrape.value("attempts_total", outcome="failed") == 1
    assert scrape.value("faults_total", kind="http_error", whose="engine") == 1
    assert scrape.value("request_duration_seconds_count") == 1
    assert scrape.value("time_to_first_token_seconds_count") is None


def test_a_refused_call_enters_no_latency():
    scrape = scraped(GOOD, asks=[{**CHAT, "model": "nobody"}, b"{"])
    assert scrape.value("requests_total", route="chat", model="unknown", outcome="refused", code="404") == 1
    assert scrape.value("requests_total", route="chat", model="unknown", outcome="refused", code="400") == 1
    assert scrape.value("faults_total", kind="unknown_model", whose="client") == 1
    assert scrape.value("request_duration_seconds_count") is None
    assert scrape.value("gateway_overhead_seconds_count") is None


def test_what_is_no_request_is_counted_too():
    async def body():
        async with Upstream(GOOD) as upstream, gateway(yaml_for(upstream)) as process:
            async with RawClient(process.doors[0].shown) as client:
                await client.send(b"nonsense\r\n\r\n")
                await client.read_until_close()
            return Scrape(process)

    scrape = run(body())
    assert scrape.value("requests_total", route="unparsed", outcome="refused", code="400") == 1
    assert scrape.value("faults_total", whose="client") == 1


def test_a_retry_counts_two_attempts_and_one_fault():
    async def reset(conn, request):
        conn.rst()

    async def body():
        async with Upstream(GOOD, reset, GOOD) as upstream, gateway(yaml_for(upstream)) as process:
            async with RawClient(process.doors[0].shown) as client:
                await client.post(PATH, CHAT)
                answer = await client.post(PATH, CHAT)
                assert answer.status == 200
            return Scrape(process)

    scrape = run(body())
    assert scrape.value("attempts_total", outcome="failed", why="first") == 1
    assert scrape.value("attempts_total", outcome="won", why="retry") == 1
    assert scrape.value("attempts_total", outcome="won") == 2
    assert scrape.value("faults_total", kind="connection_lost", whose="network") == 1
    assert scrape.value("faults_total") == 1
    assert scrape.value("requests_total", outcome="completed") == 2


def test_a_cut_stream():
    async def cut(conn, request):
        await conn.send(sse_head() + chunked(chat_chunk("a")))
        conn.rst()

    scrape = scraped(cut, asks=[STREAM])
    assert scrape.value("streams_cut_total") == 1
    assert scrape.value("requests_total", outcome="upstream_lost", code="502") == 1
    assert scrape.value("faults_total") == 1
    assert scrape.value("time_to_first_token_seconds_count") == 1


def test_an_error_in_a_stream_that_only_had_a_heartbeat_is_cut_and_has_no_first_token():
    async def late(conn, request):
        await conn.send(sse_head())
        await asyncio.sleep(0.3)
        await conn.send(chunked(event({"error": {"message": "late", "code": 500}})) + chunked(b""))

    scrape = scraped(late, asks=[STREAM], more="heartbeat: 0.05")
    assert scrape.value("streams_cut_total") == 1
    assert scrape.value("requests_total", code="200") is None
    assert scrape.value("time_to_first_token_seconds_count") is None


def test_a_client_that_leaves_is_no_fault():
    async def endless(conn, request):
        await conn.send(sse_head() + chunked(chat_chunk("a")))
        await conn.wait_closed()

    async def body():
        async with Upstream(endless) as upstream, gateway(yaml_for(upstream)) as process:
            client = await RawClient.connect(process.doors[0].shown)
            await client.request("POST", PATH, orjson.dumps(STREAM))
            await client.read_until(b'"a"')
            assert Scrape(process).value("worker_inflight") == 1
            assert Scrape(process).value("requests_active") == 1
            await client.close()
            await until(lambda: not process.service.active, "the call's end")
            return Scrape(process)

    scrape = run(body())
    assert scrape.value("client_gone_total") == 1
    assert scrape.value("requests_total", outcome="client_gone", code="499") == 1
    assert scrape.value("attempts_total", outcome="cancelled") == 1
    assert scrape.value("attempts_total", outcome="failed") == 0
    assert scrape.value("faults_total") is None
    assert scrape.value("worker_inflight") == scrape.value("requests_active") == 0


def test_a_slow_upload_is_not_the_gateways_time():
    async def body():
        async with Upstream(GOOD) as upstream, gateway(yaml_for(upstream)) as process:
            async with RawClient(process.doors[0].shown) as client:
                data = orjson.dumps(CHAT)
                await client.request("POST", PATH, data[:5], {"content-length": str(len(data))})
                await until(lambda: process.service.active, "the call")
                began = time.monotonic()
                await asyncio.sleep(0.2)
                uploaded = time.monotonic() - began
                await client.send(data[5:])
                assert (await client.read_answer()).status == 200
            return Scrape(process), uploaded

    scrape, uploaded = run(body())
    rest = scrape.value("request_duration_seconds_sum") - scrape.value("gateway_overhead_seconds_sum")
    assert rest >= uploaded


def test_a_plugin_that_is_late_is_counted():
    plugins = "- chatty:Late: {}\n  budget_ms: 1\n  on_error: open"
    scrape = scraped(GOOD, asks=[CHAT], plugins=plugins)
    assert scrape.value("plugin_failures_total", plugin="chatty:Late") == 1
    assert scrape.value("requests_total", code="200") == 1


def buckets_of(segment, family):
    """The bounds of the buckets that something fell into."""
    ((_, slots),) = segment.read()[family.name][1].items()
    return [bound for bound, count in zip((*family.bounds, None), slots[1:], strict=True) if count]


@pytest.mark.interpreted
@pytest.mark.parametrize(
    ("streaming", "overhead", "first_token"),
    [pytest.param(True, 0.0002, [0.05], id="stream"), pytest.param(False, 0.005, None, id="whole answer")],
)
def test_times_fall_into_their_buckets(streaming, overhead, first_token):
    us = 1000
    standing = SimpleNamespace(takes_calls=True)
    worker = SimpleNamespace(name="w", region="here", bars={}, drained=False, standing=standing)
    attempt = SimpleNamespace(
        worker=worker, end=AttemptEnd.WON, why="first", fault=None, sent_ns=8_180 * us, streaming=streaming
    )
    attempt.started_ns, attempt.first_content_ns, attempt.status = 8_100 * us, 53_000 * us, 0
    attempt.held = [] if streaming else [b"{}"]
    models = SimpleNamespace(entries={"m": None}, adapters={})
    call = SimpleNamespace(
        route=SimpleNamespace(name="chat"),
        entry=SimpleNamespace(name="m"),
        chain=SimpleNamespace(models=models),
        race=SimpleNamespace(winner=attempt),
        tries=[attempt],
        started_ns=1_000 * us,
        received_ns=3_000 * us,
        waited_ns=5_000 * us,
        requeued_ns=0,
        fact=lambda kind: None,
    )
    outcome = Outcome(Ending.COMPLETED, 200)
    outcome.first_content_ns = 53_000 * us
    outcome.finished_ns = 56_000 * us
    segment = Segment.create()
    counts = CallCounts(Register(segment))
    for _ in range(2):
        counts.completed(call, outcome)
    assert buckets_of(segment, catalogue.DURATION) == [0.1]
    assert buckets_of(segment, catalogue.OVERHEAD) == [overhead]
    assert catalogue.STAGES.name not in segment.read()
    counts.stages.write()
    counts.stages.write()
    stages = segment.read()[catalogue.STAGES.name][1]
    assert {values[1:] for values in stages} == {("m", "none", "here", "chat", "ready", "none")}
    # The sums of all stages are that of the durations.
    assert sum(slots[0] for slots in stages.values()) == pytest.approx(2 * 0.055)
    assert all(sum(slots[1:]) == 2 for slots in stages.values())
    # From the last write of a process on, each call is written by itself.
    counts.stages.at_once = True
    counts.completed(call, outcome)
    later = segment.read()[catalogue.STAGES.name][1]
    assert all(sum(slots[1:]) == 3 for slots in later.values())
    if first_token is None:
        assert catalogue.FIRST_TOKEN.name not in segment.read()
    else:
        assert buckets_of(segment, catalogue.FIRST_TOKEN) == first_token
    segment.close()


@pytest.mark.parametrize(
    ("status", "code"),
    [(200, "200"), (206, "2xx"), (302, "3xx"), (418, "4xx"), (429, "429"), (599, "5xx"), (0, "other")],
)
def test_codes_come_from_a_fixed_set(status, code):
    assert code_of(status) == code
