"""Workers that fail, hang or are full: who gets calls, and how soon all is well again."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack, asynccontextmanager
from types import SimpleNamespace

import orjson
import pytest
from fakes import CHAT, PATH, RawClient, Upstream, chat_answer, gateway, json_answer, run, sse_answer, stream_of, until
from scrape import Scrape
from served import engine, serving

from cases.scene import STREAM
from cases.scripts import WELL, silent, ticking

BROKEN = json_answer({"error": {"message": "broken"}}, 500)
WRONG = json_answer({"error": {"message": "wrong"}}, 400)
QUICK = sse_answer(stream_of(["quick"]))


@asynccontextmanager
async def fleet(folder, *scripts, breaker="", more="", plugins="- cases.policies:InOrder\n"):
    """Workers of one model behind the breaker, the first preferred."""
    async with AsyncExitStack() as stack:
        workers = [await stack.enter_async_context(Upstream(script)) for script in scripts]
        process = await stack.enter_async_context(gateway(behind_the_breaker(folder, workers, breaker, more, plugins)))

        async def ask(body=CHAT):
            async with RawClient(process.doors[0].shown) as client:
                return await client.post(PATH, body)

        yield SimpleNamespace(ask=ask, process=process, workers=workers, barred=lambda: barred(process))


def behind_the_breaker(folder, workers, breaker, more, plugins):
    urls = ", ".join(f"'{worker.url}'" for worker in workers)
    listed = "\n".join(f"  {line}" for line in f"- breaker: {{{breaker}}}\n{plugins}".strip().split("\n"))
    return f"listen: [127.0.0.1:0]\nmodels: {{m: {{workers: [{urls}]}}}}\nplugins:\n{listed}\nstate: {folder}\n{more}"


def barred(process):
    return [bool(worker.bars) for worker in process.pools["model:m"].workers]


def test_RTE_03_healthy_by_probe_and_dead_by_work(tmp_path):
    """It accepts and says nothing: after three first-token timeouts without progress it gets no more calls."""

    async def body():
        more = "timeouts: {first_content_base: 0.1, first_content_per_mib: 0}"
        async with fleet(tmp_path, engine(silent), engine(QUICK), more=more) as f:
            statuses = [(await f.ask(STREAM)).status for _ in range(6)]
            assert statuses == [504] * 3 + [200] * 3
            assert f.barred() == [True, False]
            assert Scrape(f.process).value("breaker_changes_total", to="open", why="stalls") == 1

    run(body())


def test_RTE_03_dead_by_probe_and_well_by_work(tmp_path):
    """A worker that fails every health check keeps its calls as long as its streams go on."""
    streaming = ticking(1000, 0.05)
    failed, streams = [], []

    async def failing_probes(conn, request):
        if request.method == "POST":
            await streaming(conn, request)
        elif request.target == "/health" and streams:
            failed.append(request)
            await conn.send(BROKEN)
        else:
            await conn.send(json_answer({}, 200 if request.target == "/health" else 404))

    async def body():
        async with Upstream(failing_probes) as worker:
            yaml = f"""
listen: 127.0.0.1:0
pre_stop: 0
state: {tmp_path}/state
models: {{m: {{workers: ['{worker.url}']}}}}
plugins: [breaker, route]
"""
            async with serving(tmp_path, yaml) as served:
                async with RawClient(served.url) as client, RawClient(served.url) as other:
                    await client.request("POST", PATH, orjson.dumps(STREAM))
                    await client.read_until(b'"5"')
                    streams.append(client)
                    await until(lambda: len(failed) >= 3, "probes that fail", limit=25.0)
                    await other.request("POST", PATH, orjson.dumps(STREAM))
                    assert (await other.read_head()).status == 200

    run(body())


def test_RTE_05_everything_fails_and_recovers(tmp_path):
    """Half of the workers always get calls; a while after all are well again, all do."""

    async def body():
        failing = [True]

        async def script(conn, request):
            await conn.send(BROKEN if failing[0] else WELL)

        breaker = "open_for: 200ms, open_limit: 400ms, ramp: 0"
        async with fleet(tmp_path, *[script] * 4, breaker=breaker, plugins="- route: {policy: random}\n") as f:
            for _ in range(60):
                assert (await f.ask()).status == 500, "never 'no healthy upstream'"
            assert sum(f.barred()) >= 3
            failing[0] = False
            plugin = f.process.service.chain.pipeline.links[0].plugin
            while plugin.panel._open:
                assert (await f.ask()).status == 200
            assert f.barred() == [False] * 4
            seen = [len(worker.requests) for worker in f.workers]
            while any(len(worker.requests) == before for worker, before in zip(f.workers, seen, strict=True)):
                assert (await f.ask()).status == 200

    run(body())


def test_RTE_05_a_pool_of_one(tmp_path):
    async def body():
        answers = [BROKEN] * 10

        async def script(conn, request):
            await conn.send(answers.pop() if answers else WELL)

        async with fleet(tmp_path, script) as f:
            statuses = [(await f.ask()).status for _ in range(12)]
            assert statuses == [500] * 10 + [200] * 2

    run(body())


@pytest.mark.parametrize("how", ["refused", "left", "limit"])
def test_RTE_07_a_probe_slot_is_always_returned(tmp_path, how):
    async def body():
        answers = [BROKEN] * 5

        async def script(conn, request):
            if answers:
                await conn.send(answers.pop())
            elif how == "refused" and len(f.workers[0].requests) == 6:
                await conn.send(WRONG)
            elif len(f.workers[0].requests) == 6:
                await conn.wait_closed()
            else:
                await conn.send(WELL)

        breaker = "open_for: 100ms, ramp: 0"
        more = "timeouts: {total: 0.2}" if how == "limit" else ""
        async with fleet(tmp_path, script, WELL, breaker=breaker, more=more) as f:
            for _ in range(5):
                await f.ask()
            assert f.barred() == [True, False]
            await _probe(f, how)
            plugin = f.process.service.chain.pipeline.links[0].plugin
            await until(lambda: plugin.panel.probes["neutral"] == 1, "the probe's end")
            assert f.barred() == [True, False] or plugin.panel.odd
            while len(f.workers[0].requests) < 7:
                await f.ask()
                await asyncio.sleep(0.01)
            assert plugin.panel.probes == {"passed": 1, "failed": 0, "neutral": 1}

    run(body())


async def _probe(f, how):
    """Ask until the first worker gets its probe; where it is to be left, leave."""
    while len(f.workers[0].requests) < 6:
        if how == "left":
            async with RawClient(f.process.doors[0].shown) as client:
                await client.request("POST", PATH, b'{"model": "m", "messages": []}')
                await asyncio.sleep(0.03)
        else:
            await f.ask()
            await asyncio.sleep(0.01)


def test_RTE_09_after_a_spike_all_is_at_rest(tmp_path):
    """Many calls at once for an engine that takes five at a time; their clients do not wait. Then one call."""

    async def body():
        busy = asyncio.Semaphore(5)

        async def script(conn, request):
            async with busy:
                if conn.closed_at is None:
                    await asyncio.sleep(0.02)
                    await conn.send(WELL)

        plugins = "- retry: {}\n- hedge: {unknown: 100ms}\n- route: {}\n"
        async with fleet(tmp_path, script, plugins=plugins) as f:

            async def leaves():
                async with RawClient(f.process.doors[0].shown) as client:
                    await client.request("POST", PATH, b'{"model": "m", "messages": []}')
                    await asyncio.sleep(0.5)

            await asyncio.gather(*[leaves() for _ in range(300)])
            await until(lambda: not f.process.service.active, "the calls' ends")
            assert (await f.ask()).status == 200
            (worker,) = f.process.pools["model:m"].workers
            assert (worker.inflight, worker.bars) == (0, {})
            assert not worker.connections.busy

    run(body())


def test_RTE_15_all_processes_of_a_host_agree(tmp_path):
    """Four processes; one worker fails. Once one of them has taken it out, none sends it anything more."""

    async def body():
        async with Upstream(engine(BROKEN)) as bad, Upstream(engine(json_answer(chat_answer("well")))) as good:
            yaml = f"""
listen: 127.0.0.1:0
processes: 4
pre_stop: 0
state: {tmp_path}/state
models: {{m: {{workers: ['{bad.url}', '{good.url}']}}}}
plugins:
  - breaker: {{open_for: 60s}}
  - route: {{policy: random}}
"""
            async with serving(tmp_path, yaml) as served:

                async def ask():
                    async with RawClient(served.url) as client:
                        return (await client.post(PATH, CHAT)).status

                def calls(worker):
                    return len([each for each in worker.requests if each.method == "POST"])

                while not [line for line in served.log if "gets no calls" in line]:
                    await asyncio.gather(*[ask() for _ in range(8)])
                await asyncio.sleep(0.5)
                before = calls(bad)
                statuses = Counter()
                for _ in range(12):
                    statuses.update(await asyncio.gather(*[ask() for _ in range(8)]))
                assert statuses == {200: 96}
                assert calls(bad) == before
                told = [line for line in served.log if "gets no calls" in line]
                assert len(told) == 1, "one process decides, the others follow"

    run(body(), limit=50)


def test_a_slow_worker_of_several_is_taken_out(tmp_path):
    async def slowly(conn, request):
        await asyncio.sleep(0.25)
        await conn.send(QUICK)

    async def body():
        breaker = "slow_samples: 5, open_for: 60s"
        async with fleet(tmp_path, slowly, QUICK, QUICK, breaker=breaker, plugins="- route: {policy: random}\n") as f:
            while not any(f.barred()):
                await asyncio.gather(*[f.ask(STREAM) for _ in range(6)])
            assert f.barred() == [True, False, False]

    run(body())


def test_a_model_without_healthy_workers_gets_a_degraded_answer(tmp_path):
    async def body():
        breaker = "degraded: [{message: Back in a minute.}]"
        async with fleet(tmp_path, BROKEN, BROKEN, breaker=breaker) as f:
            answers = [await f.ask() for _ in range(12)]
            assert {answer.status for answer in answers[:5]} == {500}
            last = answers[-1]
            assert last.status == 200
            assert last.json()["choices"][0]["message"]["content"] == "Back in a minute."

    run(body())
