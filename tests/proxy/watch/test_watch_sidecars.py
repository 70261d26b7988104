"""A gateway and its sidecars: what is pushed, what is believed, and who is chosen."""

from __future__ import annotations

import os
import signal

import pytest
from fakes import Connection, RawClient, Upstream, decoded, json_answer, run, until
from sidecars import CHAT, HELLO, KEY, HeldEngine, found, hop, sidecar, simulated, url_of
from tailrace.proxy.commands.workers import table
from tailrace.proxy.gateway import running
from tailrace.proxy.hop import REFUSED
from tailrace.proxy.roll import described
from tailrace.worker.sim import Adapter
from watched import chat, feeding, state, watching, worker_of, yaml


def test_load_is_pushed_to_every_gateway():
    async def body():
        async with HeldEngine() as engine, sidecar(found(engine.url), "concurrency: 1") as side:
            async with watching(url_of(side)) as one, watching(url_of(side)) as two:
                standings = [worker_of(process).standing for process in (one, two)]
                await until(lambda: all(standing.running == 0 for standing in standings))
                assert side.feed.subscribers == 2
                async with RawClient(url_of(one)) as first, RawClient(url_of(two)) as second:
                    for client in (first, second):
                        await client.request("POST", CHAT, b'{"model":"tiny","messages":[]}')
                    await until(lambda: all((one.running, one.waiting) == (1, 1) for one in standings))
                    engine.release(2)
                    await first.read_answer()
                    await second.read_answer()
                await until(lambda: all((one.running, one.waiting) == (0, 0) for one in standings))

    run(body())


def test_a_killed_engine_gets_no_calls_and_comes_back():
    engine = "{sim: {model: tiny, ttft_ms: 0, itl_ms: 0}, warmup: {kind: 'off'}, start: {back_off: 0.1}}"

    async def body():
        async with simulated() as other, sidecar(engine) as killed, sidecar(found(other.url)) as stays:
            async with watching(url_of(killed), url_of(stays)) as process:
                worker = worker_of(process)
                await until(lambda: worker.standing.models)
                os.kill(killed.report.engine.pid, signal.SIGKILL)
                await until(lambda: not worker.eligible)
                assert worker.standing.dead
                for _ in range(8):
                    assert (await chat(process)).status == 200
                assert len([request for request in other.received if request.path == CHAT]) == 8
                await until(lambda: worker.eligible)
                assert worker.standing.models == {"tiny": ""}

    run(body())


def test_a_sidecar_that_goes_away_and_returns():
    async def body():
        async with simulated() as sim, watching_port() as (process, port):
            worker = worker_of(process)
            await until(lambda: not worker.eligible)
            assert "no connection" in worker.standing.reason
            for _ in range(2):
                async with sidecar(found(sim.url), listen=f"127.0.0.1:{port}"):
                    await until(lambda: worker.eligible)
                    assert (await chat(process)).status == 200
                await until(lambda: not worker.eligible)
                assert (await chat(process)).status == 503

    run(body())


class watching_port:  # noqa: N801 - reads as a function
    """A gateway whose worker's port nobody listens on yet."""

    async def __aenter__(self):
        async with Upstream(json_answer({})) as upstream:
            self.port = upstream._port
        self.process = watching(f"http://127.0.0.1:{self.port}")
        return await self.process.__aenter__(), self.port

    async def __aexit__(self, *exc):
        await self.process.__aexit__(*exc)


def test_the_key_opens_the_sidecar():
    async def body():
        async with simulated() as sim, sidecar(found(sim.url), f"hop_key: {KEY}") as side:
            async with watching(url_of(side), more=f"hop_key: {KEY}") as process:
                assert (await chat(process)).status == 200
                await until(lambda: side.feed.subscribers == 1)
                await until(lambda: worker_of(process).standing.models)

    run(body())


@pytest.mark.parametrize("key", ["", "hop_key: another-key-of-another-fleet"])
def test_without_the_right_key_a_worker_is_not_chosen(key: str, caplog: pytest.LogCaptureFixture):
    async def body():
        async with simulated() as sim, sidecar(found(sim.url), f"hop_key: {KEY}") as side:
            async with watching(url_of(side), more=key) as process:
                worker = worker_of(process)
                await until(lambda: not worker.eligible)
                assert "hop key" in worker.standing.reason
                assert side.feed.subscribers == 0
                assert (await chat(process)).status == 503
                # The right key, loaded while the gateway runs, brings the worker back.
                await process.load(decoded(yaml(url_of(side), more=f"hop_key: {KEY}")))
                await until(lambda: worker.eligible)
                assert (await chat(process)).status == 200
        assert "hop key" in caplog.text

    run(body())


def test_a_worker_that_comes_back_with_another_key_is_neither_dead_nor_draining():
    async def hang_up(conn: Connection) -> None:
        conn.close()

    async def body():
        last = state(ready=False, draining=True, dead=True)
        refusal = json_answer({"error": {"code": REFUSED}}, 401)
        async with Upstream(feeding(last, then=hang_up), refusal) as upstream, watching(upstream.url) as process:
            worker = worker_of(process)
            await until(lambda: worker.standing.hop_refused)
            assert (worker.standing.dead, worker.standing.draining, worker.eligible) == (False, False, False)
            (row,) = table([described(worker)]).splitlines()[1:]
            assert row.endswith(
                "  not ready: it does not accept this gateway's hop key, `hop_key` must be the same in both files"
            )

    run(body())


def test_a_wrong_key_that_is_loaded_shows_at_once(caplog: pytest.LogCaptureFixture):
    wrong = "another-key-of-another-fleet"

    async def body():
        async with simulated() as sim, sidecar(found(sim.url), f"hop_key: {KEY}") as side:
            async with watching(url_of(side), more=f"hop_key: {KEY}") as process:
                worker = worker_of(process)
                await until(lambda: side.feed.subscribers == 1 and worker.standing.seen)
                await process.load(decoded(yaml(url_of(side), more=f"hop_key: {KEY}")))
                assert side.feed.subscribers == 1
                await process.load(decoded(yaml(url_of(side), more=f"hop_key: {wrong}")))
                # Calls that come before the sidecar has said it to the watch are told the same.
                early = await chat(process)
                assert early.status in (502, 503)
                await until(lambda: not worker.eligible)
                late = [await chat(process) for _ in range(3)]
                assert [answer.status for answer in late] == [503] * 3
                for answer in (early, *late):
                    message = answer.json()["error"]["message"]
                    assert "do not accept the gateway's hop key" in message
                    assert wrong not in message
                assert "hop key" in described(worker)["standing"]["reason"]
                await process.load(decoded(yaml(url_of(side), more=f"hop_key: {KEY}")))
                await until(lambda: worker.eligible)
                assert (await chat(process)).status == 200
        told = [record.getMessage() for record in caplog.records if "hop key" in record.getMessage()]
        assert len(told) == 1
        assert told[0].startswith(f"worker {worker.name} takes no calls: ")
        assert wrong not in caplog.text

    run(body())


def test_the_key_is_renewed_in_time():
    async def body():
        async with simulated() as sim, sidecar(found(sim.url), f"hop_key: {KEY}") as side:
            async with watching(url_of(side), more=f"hop_key: {KEY}") as process:
                key = process.watch._key
                worker = worker_of(process)
                before = worker.headers
                real = key._clock
                key._clock = lambda: real() + 60.0
                process.watch._line_due = 0.0
                await until(lambda: worker.headers != before)
                assert (await chat(process)).status == 200

    run(body())


def test_the_load_never_reaches_clients_but_the_standing():
    async def body():
        async with simulated() as sim, sidecar(found(sim.url), f"hop_key: {KEY}") as side:
            async with running(decoded(yaml(url_of(side), more=f"hop_key: {KEY}"))) as process:
                standing = worker_of(process).standing
                assert standing.running is None
                for stream in (False, True):
                    answer = await chat(process, stream=stream)
                    assert answer.status == 200
                    assert not [name for name, _ in answer.head.headers if name.lower().startswith("x-tailrace")]
                assert standing.running == 1
                assert standing.waiting == 0
                assert standing.seen is not None

    run(body())


def test_a_client_cannot_speak_for_a_gateway():
    async def body():
        async with simulated() as sim, sidecar(found(sim.url), f"hop_key: {KEY}") as side:
            async with watching(url_of(side)) as process, RawClient(url_of(process)) as client:
                await until(lambda: not worker_of(process).eligible)
                answer = await client.post(CHAT, HELLO, hop())
                assert answer.status == 503
            assert CHAT not in [request.path for request in sim.received]

    run(body())


def test_a_draining_sidecar_gets_no_calls_and_loses_none():
    async def body():
        async with simulated() as one, simulated() as two:
            async with sidecar(found(one.url)) as leaving, sidecar(found(two.url)) as stays:
                # Not watching: the gateway does not know yet when its calls arrive.
                async with running(decoded(yaml(url_of(leaving), url_of(stays)))) as process:
                    (worker,) = leaving.workers()
                    worker.drained = True
                    worker.changed()
                    for _ in range(12):
                        assert (await chat(process)).status == 200
                assert CHAT not in [request.path for request in one.received]
                async with watching(url_of(leaving), url_of(stays)) as process:
                    await until(lambda: not worker_of(process).eligible)
                    assert worker_of(process).standing.draining
                    worker.drained = False
                    worker.changed()
                    await until(lambda: worker_of(process).eligible)

    run(body())


def test_adapters_that_are_listed_become_models():
    async def body():
        async with HeldEngine() as engine, sidecar(found(engine.url, models=0.05)) as side:
            more = "default_model: fixed\n"
            text = yaml(url_of(side), more=more).replace(
                "{tiny: {pool: all}}", "{m: {pool: all}, fixed: {pool: all, lora: named}}"
            )
            async with running(decoded(text), watching=True) as process, RawClient(url_of(process)) as client:
                worker = worker_of(process)
                await until(lambda: worker.standing.models)
                assert (await client.post(CHAT, HELLO | {"model": "lora"})).status == 404
                assert (await client.post(CHAT, HELLO | {"model": "fixed"})).status == 503
                engine.models += [{"id": "lora", "parent": "m"}, {"id": "named", "parent": "m"}]
                await until(lambda: "lora" in process.service.chain.models.adapters)
                engine.release(3)
                for model in ("m", "lora", "fixed"):
                    assert (await client.post(CHAT, HELLO | {"model": model})).status == 200
                assert [call.json()["model"] for call in engine.calls] == ["m", "lora", "named"]
                await process.load(decoded(text))
                engine.release()
                assert (await client.post(CHAT, HELLO | {"model": "lora"})).status == 200
                del engine.models[1:]
                await until(lambda: not process.service.chain.models.adapters)
                assert (await client.post(CHAT, HELLO | {"model": "lora"})).status == 404
                assert (await client.post(CHAT, HELLO | {"model": "fixed"})).status == 503

    run(body())


def test_a_worker_that_a_reload_removes_is_watched_no_more():
    async def body():
        async with simulated() as sim, sidecar(found(sim.url)) as one, sidecar(found(sim.url)) as two:
            async with watching(url_of(one)) as process:
                await until(lambda: one.feed.subscribers == 1)
                await process.load(decoded(yaml(url_of(two))))
                await until(lambda: one.feed.subscribers == 0)
                await until(lambda: two.feed.subscribers == 1)
            await until(lambda: two.feed.subscribers == 0)

    run(body())


def test_an_engine_over_a_unix_socket_behind_a_sidecar_on_one(tmp_path):
    async def body():
        async with simulated(uds=str(tmp_path / "e"), port=None):
            async with sidecar(found(f"unix:{tmp_path}/e"), listen=f"unix:{tmp_path}/s") as side:
                async with watching(f"unix:{tmp_path}/s") as process:
                    await until(lambda: worker_of(process).standing.models)
                    assert (await chat(process)).status == 200
                assert side.gate.inside == 0

    run(body())


def test_adapters_of_a_launched_engine_reach_the_list_of_models():
    async def body():
        async with simulated(lora_modules=(Adapter(name="lora", path="/l"),)) as sim, sidecar(found(sim.url)) as side:
            async with watching(url_of(side)) as process, RawClient(url_of(process)) as client:
                await until(lambda: "lora" in process.service.chain.models.adapters)
                listed = (await client.get("/v1/models")).json()["data"]
                assert [(model["id"], model["parent"]) for model in listed] == [("tiny", None), ("lora", "tiny")]
                assert (await chat(process, model="lora")).status == 200

    run(body())
