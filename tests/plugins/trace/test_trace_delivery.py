"""The way to a collector: real, slow, down or refusing; calls never notice, and what is lost is counted."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from collector import collector
from fakes import CHAT, GOOD, PATH, RawClient, Upstream, gateway, run, until, yaml_for
from scrape import Scrape
from served import QUICK, engine, serving

GIVEN = {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}


def chain(url: str, **config: Any) -> str:
    return f"- trace: {json.dumps({'endpoint': url, 'ratio': 1, 'slowest': 0, 'rate': 1000, **config})}\n"


async def ask(url: str, count: int = 1, headers: dict[str, str] | None = None) -> None:
    async with RawClient(url) as client:
        for _ in range(count):
            assert (await client.post(PATH, CHAT, headers)).status == 200


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@contextmanager
def rotel(log: Path) -> Iterator[str]:
    """A real collector that prints the spans it gets."""
    agent = str(Path(find_spec("rotel").origin).parent / "rotel-agent")  # type: ignore[union-attr,arg-type]
    port, other = free_port(), free_port()
    with log.open("wb") as out:
        process = subprocess.Popen(
            [agent, "start", "--exporter", "blackhole", "--debug-log", "traces", "--debug-log-verbosity", "detailed",
             "--otlp-http-endpoint", f"127.0.0.1:{port}", "--otlp-grpc-endpoint", f"127.0.0.1:{other}"],
            stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


async def listening(url: str) -> None:
    port = int(url.rpartition(":")[2])

    async def there() -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            return False
        writer.close()
        return True

    async with asyncio.timeout(20):
        while not await there():
            await asyncio.sleep(0.02)


def test_a_real_collector_gets_the_spans_of_several_processes(tmp_path: Path) -> None:
    async def body(url: str) -> None:
        await listening(url)
        async with Upstream(engine(GOOD)) as upstream:
            yaml = yaml_for(upstream, plugins=chain(url), more=QUICK + "processes: 2\n")
            async with serving(tmp_path, yaml) as it:
                for _ in range(4):
                    await ask(it.url, headers=GIVEN)
                log = tmp_path / "rotel.log"
                await until(lambda: log.read_text().count("4bf92f3577b34da6a3ce929d0e0e4736") >= 8, limit=20)
                text = log.read_text()
                assert "gen_ai.request.model" in text
                assert "tailrace.request_id" in text
                # The engine is also asked how it is.
                told = [given.split("-")[2] for each in upstream.requests if (given := each.header("traceparent"))]
                assert len(told) == 4
                await until(lambda: all(span in log.read_text() for span in told), limit=20)
                while "tailrace_trace_delivered_total 4" not in (await it.get("/metrics")).body.decode():
                    await asyncio.sleep(0.05)

    with rotel(tmp_path / "rotel.log") as url:
        run(body(url), limit=60)


def test_a_collector_that_is_down_costs_calls_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def body() -> None:
        url = f"http://127.0.0.1:{free_port()}"
        async with Upstream(GOOD) as upstream:
            async with gateway(yaml_for(upstream, plugins=chain(url, timeout="100ms"))) as process:
                await ask(process.doors[0].shown, 10)
                await until(lambda: Scrape(process).value("trace_lost_total") == 10)
                assert Scrape(process).value("trace_delivered_total") == 0

    run(body())
    lines = [record.getMessage() for record in caplog.records if "spans cannot be delivered" in record.getMessage()]
    assert len(lines) == 1


def test_one_that_refuses_is_told_of_without_its_password(caplog: pytest.LogCaptureFixture) -> None:
    async def body() -> None:
        async with collector() as to, Upstream(GOOD) as upstream:
            to.status = 400
            url = to.url.replace("http://", "http://user:let-me-in@")
            async with gateway(yaml_for(upstream, plugins=chain(url, timeout="500ms"))) as process:
                await ask(process.doors[0].shown, 3)
                await until(lambda: Scrape(process).value("trace_lost_total") == 3)

    run(body())
    assert "let-me-in" not in caplog.text


def test_one_that_hangs_fills_a_bounded_queue_and_ends_in_time() -> None:
    async def hang(conn: Any, request: Any) -> None:
        await conn.wait_closed()

    async def body() -> None:
        async with Upstream(hang) as to, Upstream(GOOD) as upstream:
            plugins = chain(to.url, queue=20, timeout="1s")
            async with gateway(yaml_for(upstream, plugins=plugins)) as process:
                url = process.doors[0].shown
                await ask(url, 5)
                await until(lambda: to.requests, limit=20)
                await ask(url, 100)
                plugin = process.service.chain.pipeline.links[0].plugin
                assert len(plugin._outbox.records) <= 20
                await until(lambda: (Scrape(process).value("trace_overflowed_total") or 0) >= 40)

    run(body(), limit=40)


def test_what_overflows_is_counted() -> None:
    from tailrace.plugins.trace.outbox import Outbox

    outbox = Outbox(3)
    for number in range(5):
        outbox.put((number,))
    assert (outbox.dropped, outbox.take(2), outbox.take(9)) == (2, [(0,), (1,)], [(2,)])
    outbox.put((9,))
    outbox.drop()
    assert (outbox.dropped, list(outbox.records)) == (3, [])


def test_a_changed_configuration_leads_to_another_collector(tmp_path: Path) -> None:
    async def body() -> None:
        async with collector() as one, collector() as other, Upstream(engine(GOOD)) as upstream:
            async with serving(tmp_path, yaml_for(upstream, plugins=chain(one.url), more=QUICK)) as it:
                await ask(it.url)
                await one.roots(1)
                it.file.write_text(it.file.read_text().replace(one.url, other.url))
                await it.generation(2)
                await ask(it.url)
                await other.roots(1)
                assert len(await one.roots(1)) == 1

    run(body(), limit=40)


def test_two_gateways_of_one_user_need_no_folder_of_their_own(tmp_path: Path) -> None:
    async def body() -> None:
        async with Upstream(engine(GOOD)) as upstream:
            yaml = yaml_for(upstream, plugins=chain("http://127.0.0.1:1"), more=QUICK)
            (tmp_path / "a").mkdir()
            (tmp_path / "b").mkdir()
            async with serving(tmp_path / "a", yaml) as one, serving(tmp_path / "b", yaml) as other:
                assert one.url != other.url

    run(body(), limit=40)
