"""Workers that take calls and fail every one: said once, shown while it lasts, and told to whoever asks."""

from __future__ import annotations

import asyncio
import logging

import pytest
from fakes import GOOD, Connection, Request, Upstream, answer, decoded, json_answer, run, until
from scrape import Scrape
from sidecars import CHAT, simulated
from tailrace.proxy import trouble
from tailrace.proxy.gateway import running
from tailrace.proxy.roll import described
from tailrace.proxy.watch import watcher
from tailrace.proxy.watch.feed import PATH
from tailrace.worker.sim import Adapter
from watched import chat, watching, worker_of, yaml


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher, "POLL", 0.02)
    monkeypatch.setattr(watcher, "LATEST", 0.1)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def reason_of(process) -> str:
    return described(worker_of(process))["standing"]["reason"]


def test_a_worker_that_refuses_the_key_is_told_once_and_is_well_once_it_does_not(caplog: pytest.LogCaptureFixture):
    refuses = True

    async def script(conn: Connection, request: Request) -> None:
        if request.target == "/health":
            await conn.send(json_answer({}))
        elif refuses:
            await conn.send(json_answer({"error": "Unauthorized"}, 401))
        else:
            await conn.send(json_answer({"data": [{"id": "tiny"}]}) if request.method == "GET" else GOOD)

    async def body():
        nonlocal refuses
        async with Upstream(script) as upstream, watching(upstream.url) as process:
            name = worker_of(process).name
            await until(lambda: reason_of(process))
            assert reason_of(process) == trouble.CREDENTIALS
            for _ in range(3):
                assert (await chat(process)).status == 502
            await asyncio.sleep(0.1)
            assert warnings(caplog) == [f"worker {name} takes calls, but they fail: {trouble.CREDENTIALS}"]
            refuses = False
            await until(lambda: not reason_of(process))
            assert "is well again" in caplog.text

    with caplog.at_level(logging.INFO):
        run(body())


def test_what_only_calls_meet_is_told_too_and_forgotten_in_time(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    async def body():
        async with Upstream(json_answer({}, 403)) as upstream, running(decoded(yaml(upstream.url))) as process:
            for _ in range(3):
                assert (await chat(process)).status == 502
            assert len(warnings(caplog)) == 1
            assert reason_of(process) == trouble.CREDENTIALS
            monkeypatch.setattr(trouble, "FORGOTTEN", -1.0)
            assert reason_of(process) == ""

    run(body())


def test_a_server_that_knows_no_path_is_no_inference_server(caplog: pytest.LogCaptureFixture):
    async def body():
        page = answer(404, b"<html>", content_type="text/html")
        async with Upstream(page) as upstream, watching(upstream.url) as process:
            await until(lambda: reason_of(process))
            assert reason_of(process) == trouble.NO_SERVER
            assert worker_of(process).eligible
            refused = await chat(process)
            error = refused.json()["error"]
            assert (refused.status, error["code"]) == (502, "bad_upstream_answer")
            assert "no inference server" in error["message"]
            assert warnings(caplog) == [
                f"worker {worker_of(process).name} takes calls, but they fail: {trouble.NO_SERVER}"
            ]

    run(body())


def test_calls_go_past_a_server_that_is_healthy_and_no_engine(caplog: pytest.LogCaptureFixture):
    async def body():
        page = answer(404, b"<html>", content_type="text/html")
        async with Upstream(page) as page_server, simulated() as engine:
            text = (
                yaml(page_server.url, engine.url)
                + "plugins: [{retry: {back_off: 0}}, {route: {policy: round_robin}}]\n"
            )
            async with running(decoded(text)) as process:
                for _ in range(4):
                    assert (await chat(process, model="tiny")).status == 200
                assert trouble.NO_ENGINE in [trouble.trouble_of(worker) for worker in process.workers()]
                assert len(warnings(caplog)) == 1

    run(body())


@pytest.mark.parametrize(("given", "status"), [("as: nosuch", 404), ("lora: nosuch", 503)])
def test_a_name_that_no_worker_lists_is_told(given: str, status: int, caplog: pytest.LogCaptureFixture):
    async def body():
        async with simulated(lora_modules=(Adapter(name="lora", path="/l"),)) as one, simulated() as two:
            text = yaml(one.url, two.url).replace("{tiny: {pool: all}}", f"{{m: {{pool: all, {given}}}}}")
            async with running(decoded(text), watching=True) as process:
                await until(lambda: warnings(caplog))
                said = ["model 'm': no worker lists 'nosuch'; they list 'lora', 'tiny'"]
                assert warnings(caplog) == said
                refused = await chat(process, model="m")
                assert refused.status == status
                assert "o worker lists 'nosuch'" in refused.json()["error"]["message"]
                assert Scrape(process).value("faults_total", whose="gateway") == 1
                for worker in process.workers():
                    process.watch.changed(worker)
                assert warnings(caplog) == said

    run(body())


def test_a_name_is_missed_only_once_every_worker_that_lives_has_said_what_it_lists(caplog: pytest.LogCaptureFixture):
    listed = [{"id": "tiny"}]

    async def script(conn: Connection, request: Request) -> None:
        if request.target == PATH:
            await conn.send(json_answer({}, 404))
        else:
            await conn.send(json_answer({"data": listed}))

    async def body():
        async with Upstream(script) as one, Upstream(script) as two:
            two.refuse()
            text = yaml(one.url, two.url).replace("{tiny: {pool: all}}", "{m: {pool: all, lora: zz}}")
            async with running(decoded(text), watching=True) as process:
                await until(lambda: worker_of(process).standing.models)
                assert worker_of(process, 1).standing.dead or not warnings(caplog)
                await until(lambda: any("no worker lists 'zz'" in line for line in warnings(caplog)))
                listed.append({"id": "zz", "parent": "tiny"})
                await until(lambda: "a worker lists 'zz' now" in caplog.text)

    with caplog.at_level(logging.INFO):
        run(body())


def test_a_404_that_a_client_has_asked_for_stays_its_own():
    async def script(conn: Connection, request: Request) -> None:
        if request.method == "GET":
            await conn.send(json_answer({"data": [{"id": "tiny"}]}))
        else:
            await conn.send(json_answer({"error": {"message": "no such response", "code": 404}}, 404))

    async def body():
        async with Upstream(script) as upstream, watching(upstream.url) as process:
            await until(lambda: worker_of(process).standing.models)
            refused = await chat(process)
            assert (refused.status, refused.json()["error"]["message"]) == (404, "no such response")
            assert any(request.target == CHAT for request in upstream.requests)

    run(body())
