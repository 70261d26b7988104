"""The sidecar's own questions to an engine."""

import asyncio

import pytest
from aiohttp import web
from engine_doubles import HttpEngine
from tailrace.proxy.watch.exposition import WANTED
from tailrace.worker.engine import client as client_module
from tailrace.worker.engine.client import EngineClient, Unanswered
from tailrace.worker.engine.state import Model


def with_engine(engine: HttpEngine, ask, **options):
    async def run():
        async with engine, EngineClient(engine.url, **options) as client:
            return await ask(client)

    return asyncio.run(run())


@pytest.mark.parametrize(("status", "says"), [(200, None), (503, "/health answers 503"), (404, "/health answers 404")])
def test_health(status, says):
    assert with_engine(HttpEngine(**{"GET /health": (status, b"")}), lambda client: client.health()) == says


def test_only_the_wanted_metrics_are_asked_for():
    engine = HttpEngine(**{"GET /metrics/": (200, b"figures")})
    assert with_engine(engine, lambda client: client.metrics()) == b"figures"
    assert engine.asked[0][1] == "&".join(f"name[]={name}" for name in WANTED)


def test_an_engine_that_knows_the_exact_path_only_is_asked_once_in_two_ways():
    engine = HttpEngine(**{"GET /metrics": (200, b"figures")})

    async def twice(client):
        return await client.metrics(), await client.metrics()

    assert with_engine(engine, twice) == (b"figures", b"figures")
    assert engine.paths() == ["GET /metrics/", "GET /metrics", "GET /metrics"]


def test_no_metrics_are_no_fault():
    assert with_engine(HttpEngine(), lambda client: client.metrics()) is None


def test_models_and_adapters():
    listed = {"data": [{"id": "base", "parent": None, "max_model_len": 2048}, {"id": "lora", "parent": "base"}]}
    engine = HttpEngine(**{"GET /v1/models": (200, listed)})
    models = with_engine(engine, lambda client: client.models(), api_key="k")
    assert models == (Model(id="base", max_length=2048), Model(id="lora", parent="base"))
    assert engine.asked[0][2]["authorization"] == "Bearer k"


@pytest.mark.parametrize(
    "answer",
    [(401, b'{"error":"Unauthorized"}'), (200, b"<html>"), (200, {"data": [{}]}), (200, []), (200, {"data": {"a": 1}})],
)
def test_a_list_of_models_that_is_none(answer):
    assert with_engine(HttpEngine(**{"GET /v1/models": answer}), lambda client: client.models()) is None


def test_silence_and_refusal_are_told_apart():
    async def hang(request: web.Request) -> web.Response:
        await asyncio.sleep(600)
        raise AssertionError

    with pytest.raises(Unanswered, match=r"no answer to /health within 0.02 s") as caught:
        with_engine(HttpEngine(**{"GET /health": hang}), lambda client: client.health(), timeout=0.02)
    assert caught.value.late

    async def nobody(path: str):
        async with EngineClient(f"unix:{path}") as client:
            await client.health()

    with pytest.raises(Unanswered) as caught:
        asyncio.run(nobody("/nowhere/engine.sock"))
    assert not caught.value.late


def test_an_answer_without_end_is_given_up(monkeypatch):
    monkeypatch.setattr(client_module, "LARGEST", 1000)
    engine = HttpEngine(**{"GET /metrics/": (200, b"x" * 2000)})
    with pytest.raises(Unanswered, match="larger"):
        with_engine(engine, lambda client: client.metrics())


def test_a_closed_client_answers_nothing():
    async def run():
        async with EngineClient("http://127.0.0.1:1") as client:
            pass
        await client.health()

    with pytest.raises(Unanswered):
        asyncio.run(run())
