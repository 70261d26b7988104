"""What the log, the list of workers and the metrics say of workers that fail calls which others then answer."""

import logging

import pytest
from fakes import CHAT, GOOD, PATH, RawClient, Upstream, gateway, json_answer, run, yaml_for
from scrape import Scrape
from tailrace.proxy.metrics import failing
from tailrace.proxy.roll import described


def broken(message, status=500):
    return json_answer({"error": {"message": message, "type": "x", "code": status}}, status)


def lines_of(caplog):
    return [record.getMessage() for record in caplog.records if " attempts: " in record.getMessage()]


async def ask(process, count):
    async with RawClient(process.doors[0].shown) as client:
        return [(await client.post(PATH, CHAT)).status for _ in range(count)]


def test_a_worker_that_fails_what_others_answer_is_told_now_and_then(caplog, monkeypatch):
    answers = broken("Injected failure.")

    async def script(conn, request):
        await conn.send(answers)

    async def body():
        nonlocal answers
        async with Upstream(script) as upstream, gateway(yaml_for(upstream)) as process:
            (worker,) = process.workers()
            calls = process.service.metrics.calls
            clock = [100.0]
            monkeypatch.setattr(calls._failing, "_clock", lambda: clock[0])
            assert await ask(process, 3) == [500] * 3
            first = f"worker {worker.name} failed 1 of 1 attempts: 500 Injected failure (http_error)"
            assert lines_of(caplog) == [first]
            assert described(worker)["standing"]["reason"] == first.removeprefix(f"worker {worker.name} ")
            answers = GOOD
            assert await ask(process, 20) == [200] * 20
            answers = broken("Injected failure.")
            clock[0] += failing.EVERY
            await ask(process, 1)
            assert "failed 3 of 23 attempts" in lines_of(caplog)[1]
            assert "1 of 1" in described(worker)["standing"]["reason"], "one in eight is nothing for the list"

    with caplog.at_level(logging.WARNING, "tailrace"):
        run(body())


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("bad key sk-abcdefghij0123456789 there", "bad key … there"),
        ("sent Authorization: Bearer abc", "sent … abc"),
        ("cannot reach redis://user:pw@host/0", "cannot reach redis://…host/0"),
        ("password=hunter2 is wrong", "… is wrong"),
        ("x " * 200, "x " * 100 + "…"),
        ("CUDA error: an illegal memory access", "CUDA error: an illegal memory access"),
    ],
)
def test_the_engine_s_words_are_told_without_what_looks_like_a_secret(message, told, caplog):
    async def body():
        async with Upstream(broken(message)) as upstream, gateway(yaml_for(upstream)) as process:
            await ask(process, 1)

    with caplog.at_level(logging.WARNING, "tailrace"):
        run(body())
    (line,) = lines_of(caplog)
    assert line.endswith(f"500 {told} (http_error)")


def test_what_a_client_asked_for_is_no_failure_of_a_worker(caplog):
    async def body():
        async with Upstream(broken("no such field", 400)) as upstream, gateway(yaml_for(upstream)) as process:
            assert await ask(process, 2) == [400, 400]
            return Scrape(process)

    with caplog.at_level(logging.WARNING, "tailrace"):
        scrape = run(body())
    assert scrape.value("attempts_total", outcome="refused") == 2
    assert scrape.value("attempts_total", outcome="failed") == 0
    assert not lines_of(caplog)


def test_nothing_is_kept_of_a_worker_that_is_gone():
    async def body():
        async with Upstream(broken("no")) as upstream, gateway(yaml_for(upstream)) as process:
            await ask(process, 1)
            calls = process.service.metrics.calls
            assert calls._failing._workers
            calls.forget_workers({upstream.url})
            assert not calls._failing._workers

    run(body())
