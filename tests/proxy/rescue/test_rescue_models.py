"""Models with other names, of fallbacks, and adapters: a stream goes on with what it began with."""

from __future__ import annotations

from contextlib import AsyncExitStack

import orjson
import pytest
from fakes import (
    PATH,
    RawClient,
    Upstream,
    gateway,
    json_answer,
    run,
    sending,
)
from lost import ASK, PLUGINS, WHOLE, Engine, is_whole, losing, pausing, text_of
from tailrace.proxy.fleet import ModelEntry

RENAMED = "{front: {workers: [%s], as: back, rename: true}}"


def test_a_renamed_model_keeps_its_name() -> None:
    async def body() -> None:
        victim, other = Engine("fin"), Engine()
        async with Upstream(victim) as first, Upstream(other) as second:
            workers = f'"{first.url}", "{second.url}"'
            yaml = f"listen: [127.0.0.1:0]\nmodels: {RENAMED % workers}\nplugins: {PLUGINS}\n"
            async with gateway(yaml) as process, RawClient(process.doors[0].shown) as client:
                answer = await client.post(PATH, {**ASK, "model": "front"})
        assert text_of(answer.body) == WHOLE
        models = {orjson.loads(event.data)["model"] for event in answer.events if event.data.startswith(b"{")}
        assert models == {"front"}
        assert [asked["model"] for asked in (request.json() for request in other.asked)] == ["back", "back"]

    run(body())


def test_a_stream_of_a_fallback_goes_on_with_the_fallbacks_model() -> None:
    async def body() -> None:
        broken, victim, other = Engine(), Engine("fin"), Engine()
        broken.on[PATH] = sending(json_answer({"error": {"message": "no", "code": 500}}, 500))
        async with Upstream(broken) as big, Upstream(victim) as first, Upstream(other) as second:
            small = f'{{workers: ["{first.url}", "{second.url}"], as: s}}'
            models = f'{{big: {{workers: ["{big.url}"]}}, small: {small}}}'
            plugins = PLUGINS.replace("rescue,", "rescue, {fallback: {to: [{model: small}]}},")
            yaml = f"listen: [127.0.0.1:0]\nmodels: {models}\nplugins: {plugins}\n"
            async with gateway(yaml) as process, RawClient(process.doors[0].shown) as client:
                answer = await client.post(PATH, {**ASK, "model": "big"})
        assert is_whole(answer.body), answer.body
        assert [asked["model"] for asked in (request.json() for request in other.asked)] == ["s", "s"]
        assert len(broken.asked) == 1

    run(body())


def test_a_stream_of_a_fallback_goes_on_in_the_fallbacks_pool() -> None:
    async def body() -> None:
        broken, victim, other = Engine(), Engine("fin"), Engine()
        broken.on[PATH] = sending(json_answer({"error": {"message": "no", "code": 500}}, 500))
        async with Upstream(broken) as big, Upstream(victim) as first, Upstream(other) as second:
            pools = f'{{main: {{workers: ["{big.url}"]}}, spare: {{workers: ["{first.url}", "{second.url}"]}}}}'
            plugins = PLUGINS.replace("rescue,", "rescue, {fallback: {to: [{pool: spare}]}},")
            yaml = f"listen: [127.0.0.1:0]\npools: {pools}\nmodels: {{m: {{pool: main}}}}\nplugins: {plugins}\n"
            async with gateway(yaml) as process, RawClient(process.doors[0].shown) as client:
                answer = await client.post(PATH, ASK)
        assert is_whole(answer.body), answer.body
        assert other.paths() == ["/tokenize", "/v1/completions"]
        assert broken.paths() == [PATH]

    run(body())


@pytest.mark.parametrize("kind", ["model", "pool"])
@pytest.mark.parametrize("alone", [True, False])
def test_who_else_there_is_for_a_stream_of_a_fallback_that_hangs(kind: str, alone: bool) -> None:
    """Workers of the model that was asked first are none: one of them is free here where the stream's own is alone."""

    async def body() -> None:
        broken, free, victim, other = Engine(), Engine(), Engine(), Engine()
        broken.on[PATH] = sending(json_answer({"error": {"message": "no", "code": 500}}, 500))
        victim.on[PATH] = pausing(0.7) if alone else Engine("hang")
        async with AsyncExitStack() as stack:
            urls = [
                f'"{(await stack.enter_async_context(Upstream(engine))).url}"'
                for engine in (broken, free, victim, other)
            ]
            first, second = (urls[:2], urls[2:3]) if alone else (urls[:1], urls[2:])
            places = f"first: {{workers: [{', '.join(first)}]}}, second: {{workers: [{', '.join(second)}]}}"
            models = f"{{{places}}}" if kind == "model" else "{first: {pool: first}}"
            pools = f"pools: {{{places}}}\n" if kind == "pool" else ""
            plugins = PLUGINS.replace(
                "rescue,", f"{{rescue: {{silence: 200ms}}}}, {{fallback: {{to: [{{{kind}: second}}]}}}},"
            )
            yaml = f"listen: [127.0.0.1:0]\n{pools}models: {models}\nplugins: {plugins}\n"
            process = await stack.enter_async_context(gateway(yaml))
            client = await stack.enter_async_context(RawClient(process.doors[0].shown))
            answer = await client.post(PATH, {**ASK, "model": "first"})
        assert is_whole(answer.body), answer.body
        assert (victim.paths(), bool(other.asked), free.asked) == ([PATH], not alone, [])

    run(body())


def test_an_adapter_is_gone_on_with_only_where_it_is() -> None:
    async def body() -> None:
        victim, without, having = Engine("fin"), Engine(), Engine()
        async with losing(victim, without, having) as scene:
            by_url = {worker.name: worker for worker in scene.process.roster.workers}
            for place, upstream in enumerate(scene.upstreams):
                listed: dict[str, str | None] = {"m": None}
                if place != 1:
                    listed["lora"] = "m"
                worker = by_url[upstream.url]
                worker.standing.models = listed
            pool = by_url[scene.upstream.url].pools[0]
            entry = ModelEntry("lora", pool, "lora", adapter=True)
            scene.process.service.chain.models.adapters["lora"] = entry
            pool.attach(entry)
            pool.rebuild()
            answer = await scene.ask({**ASK, "model": "lora"})
            assert is_whole(answer.body)
            assert not without.asked
            assert {request.json()["model"] for request in having.asked} == {"lora"}

    run(body())
