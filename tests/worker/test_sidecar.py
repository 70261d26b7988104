"""The sidecar as its gateways meet it: what it serves, whom, and what it says on every answer."""

from __future__ import annotations

import json

import pytest
from fakes import RawClient, Upstream, json_answer, run, until
from scrape import Scrape
from sidecars import CHAT, HELLO, KEY, STREAMED, found, hop, sidecar, simulated, url_of, worker_settings
from tailrace.worker.sidecar import running
from tailrace.worker.sim import Adapter, Fault


def test_a_stream_and_a_unary_answer_pass_through():
    async def body():
        async with simulated() as sim, sidecar(found(sim.url)) as process, RawClient(url_of(process)) as client:
            unary = await client.post(CHAT, HELLO)
            assert unary.status == 200
            assert unary.json()["usage"]["completion_tokens"] == 4
            stream = await client.post(CHAT, STREAMED)
            assert stream.complete
            assert stream.events[-1].data == b"[DONE]"

    run(body())


@pytest.mark.parametrize("model", ["tiny", "a-model-nobody-configured", None])
def test_every_model_name_reaches_the_engine_unchanged(model: str | None):
    sent = {"messages": HELLO["messages"]} | ({"model": model} if model else {})

    async def body():
        async with simulated() as sim, sidecar(found(sim.url)) as process, RawClient(url_of(process)) as client:
            answer = await client.post(CHAT, sent)
            assert answer.status == (404 if model and model != "tiny" else 200)
            assert [json.loads(request.body) for request in sim.received if request.path == CHAT] == [sent]

    run(body())


def test_models_come_from_the_engines_list():
    async def body():
        knobs = {"lora_modules": (Adapter(name="lora", path="/lora"),)}
        async with simulated(**knobs) as sim, sidecar(found(sim.url)) as process, RawClient(url_of(process)) as client:
            listed = (await client.get("/v1/models")).json()["data"]
            assert [(model["id"], model["parent"]) for model in listed] == [("tiny", None), ("lora", "tiny")]
            assert listed[0]["max_model_len"] == 2048

    run(body())


@pytest.mark.parametrize(
    "path",
    [
        "/metrics",
        "/load",
        "/version",
        "/health",
        "/ping",
        "/sim/control",
        "/v1/models/tiny",
        "/v1/files",
        "/docs",
        "/x",
    ],
)
def test_other_paths_of_the_engine_are_out_of_reach(path: str):
    async def body():
        async with simulated() as sim, sidecar(found(sim.url)) as process, RawClient(url_of(process)) as client:
            for method in ("GET", "POST"):
                await client.request(method, path)
                answer = await client.read_answer()
                assert answer.status == 404
                assert answer.json()["error"]["code"] == "not_found"

    run(body())


def test_an_inference_path_can_be_blocked_and_another_one_opened():
    more = "blocked: [/tokenize]\nroutes: [{path: /version, pool: engine, methods: [GET]}]"

    async def body():
        async with simulated() as sim, sidecar(found(sim.url), more) as process, RawClient(url_of(process)) as client:
            assert (await client.post("/tokenize", {"prompt": "a"})).status == 404
            assert (await client.post("/detokenize", {"tokens": [1]})).status == 200
            assert "version" in (await client.get("/version")).json()

    run(body())


@pytest.mark.parametrize("headers", [{}, {"x-tailrace-hop": "1.a"}, hop("another-key-of-another-fleet")])
@pytest.mark.parametrize("path", [CHAT, "/v1/models", "/x-tailrace/state", "/metrics"])
def test_strangers_are_refused_before_their_body_is_read(headers: dict[str, str], path: str):
    async def body():
        async with (
            simulated() as sim,
            sidecar(found(sim.url), f"hop_key: {KEY}") as process,
            RawClient(url_of(process)) as client,
        ):
            await client.request("GET" if path != CHAT else "POST", path, b"", headers | {"content-length": "1000"})
            answer = await client.read_answer()
            assert answer.status == 401
            assert answer.json()["error"]["code"] == "hop_key_refused"
            assert answer.header("x-tailrace-load") is None
            assert CHAT not in [request.path for request in sim.received]

    run(body())


def test_a_gateway_with_the_key_is_served_and_probes_need_none():
    async def body():
        async with (
            simulated() as sim,
            sidecar(found(sim.url), f"hop_key: {KEY}") as process,
            RawClient(url_of(process)) as client,
        ):
            assert (await client.post(CHAT, HELLO, hop())).status == 200
            engine_saw = next(request for request in sim.received if request.path == CHAT)
            assert not [name for name in engine_saw.headers if name.startswith(b"x-tailrace-hop")]
            for probe in ("/healthz", "/readyz"):
                answer = await client.get(probe)
                assert answer.status == 200
                assert answer.header("x-tailrace-load") is None

    run(body())


def test_every_answer_says_the_load():
    async def body():
        async with simulated() as sim, sidecar(found(sim.url)) as process, RawClient(url_of(process)) as client:
            for answer in (
                await client.post(CHAT, HELLO),
                await client.post(CHAT, STREAMED),
                await client.post(CHAT, b"{"),
                await client.get("/metrics"),
            ):
                said = answer.header("x-tailrace-load")
                assert said is not None
                parts = dict(part.split("=") for part in said.split(";"))
                assert set(parts) == {"running", "waiting", "kv"}

    run(body())


@pytest.mark.parametrize(("attempt", "tries"), [(None, 2), ("1", 2), ("2", 2), ("3", 1), ("nonsense", 2)])
def test_attempts_of_earlier_hops_count(attempt: str | None, tries: int):
    more = "plugins: ['sidecars:Attempts']"

    async def body():
        async with (
            simulated() as sim,
            sidecar(found(sim.url, failures=1000), more) as process,
            RawClient(url_of(process)) as client,
        ):
            seen = next(
                link.plugin for link in process.service.chain.pipeline.links if link.name == "sidecars:Attempts"
            )
            await sim.close()
            answer = await client.post(CHAT, HELLO, {} if attempt is None else {"x-tailrace-attempt": attempt})
            assert answer.status == 503
            assert len(seen.ends) == tries

    run(body())


def test_a_refusal_that_no_engine_saw_says_so():
    async def body():
        async with (
            simulated() as sim,
            sidecar(found(sim.url, failures=1000)) as process,
            RawClient(url_of(process)) as client,
        ):
            sim.fail(Fault(fail="queue_full", count=1))
            seen = await client.post(CHAT, HELLO)
            assert seen.status == 503
            assert "unsent" not in (seen.header("x-tailrace-load") or "")
            await sim.close()
            unseen = await client.post(CHAT, HELLO)
            assert unseen.status == 503
            assert (unseen.header("x-tailrace-load") or "").endswith(";unsent")

    run(body())


def test_nothing_is_served_before_the_engine_is_ready():
    async def body():
        async with (
            simulated() as sim,
            running(worker_settings(found("http://127.0.0.1:1"))) as process,
            RawClient(url_of(process)) as client,
        ):
            assert (await client.get("/healthz")).status == 200
            assert (await client.get("/readyz")).status == 503
            assert process.unready()
            await client.request("POST", CHAT, b"", {"content-length": "1000"})
            answer = await client.read_answer()
            assert answer.status == 503
            assert answer.json()["error"]["code"] in ("worker_starting", "worker_unavailable")
            assert int(answer.header("retry-after") or 0) >= 1
        assert CHAT not in [request.path for request in sim.received]

    run(body())


def test_an_engine_that_dies_and_returns():
    async def body():
        async with simulated() as sim, sidecar(found(sim.url, failures=1)) as process:
            port = sim.port
            await sim.close()
            await until(lambda: process.report.engine.dead)
            async with RawClient(url_of(process)) as client:
                answer = await client.post(CHAT, HELLO)
                assert answer.status == 503
                assert answer.header("x-should-retry") == "true"
                assert (await client.get("/readyz")).status == 503
                async with simulated(port=port):
                    await until(lambda: process.report.takes_calls)
                    assert (await client.post(CHAT, HELLO)).status == 200

    run(body())


def test_a_plugin_of_the_yaml_stands_between_the_sidecars_own():
    more = "plugins: ['sidecars:Attempts']"

    async def body():
        async with simulated() as sim, sidecar(found(sim.url), more) as process:
            names = [link.name for link in process.service.chain.pipeline.links]
            assert names == ["admittance", "sidecars:Attempts", "gate"]

    run(body())


def test_a_reload_changes_bounds_and_keeps_the_engine():
    async def body():
        async with simulated() as sim, sidecar(found(sim.url)) as process, RawClient(url_of(process)) as client:
            engine = process.engine
            await process.load(worker_settings(found(sim.url), f"concurrency: 3\nhop_key: {KEY}"))
            assert process.engine is engine
            assert process.gate.config.concurrency == 3
            assert (await client.post(CHAT, HELLO)).status == 401
            await client.close()
            async with RawClient(url_of(process)) as other:
                assert (await other.post(CHAT, HELLO, hop())).status == 200
            with pytest.raises(Exception, match="restart"):
                await process.load(worker_settings(found("http://127.0.0.1:1")))

    run(body())


def test_stored_responses_are_the_engines_own():
    async def body():
        answers = json_answer({"id": "resp_1", "object": "response", "output": [], "status": "completed"})
        async with Upstream(answers) as engine, sidecar(found(engine.url)) as process:
            async with RawClient(url_of(process)) as client:
                answer = await client.get("/v1/responses/resp_of_an_earlier_sidecar")
                assert answer.status == 200
                assert engine.requests[-1].target == "/v1/responses/resp_of_an_earlier_sidecar"

    run(body())


def test_calls_are_counted_by_the_models_that_the_engine_lists():
    async def body():
        knobs = {"lora_modules": (Adapter(name="lora", path="/lora"),)}
        async with simulated(**knobs) as sim, sidecar(found(sim.url)) as process, RawClient(url_of(process)) as client:
            for model, status in (("tiny", 200), ("lora", 200), ("made-up", 404)):
                assert (await client.post(CHAT, HELLO | {"model": model})).status == status
            scrape = Scrape(process)
            for model in ("tiny", "lora", "unknown"):
                assert scrape.value("requests_total", route="chat", model=model) == 1
            # A new chain knows them, too.
            await process.load(process.settings)
            assert (await client.post(CHAT, HELLO)).status == 200
            assert Scrape(process).value("requests_total", route="chat", model="tiny") == 2

    run(body())
