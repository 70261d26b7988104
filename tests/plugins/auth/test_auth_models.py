"""`GET /v1/models[/{id}]` behind `auth`: a caller sees what it may use, and cannot tell the rest from what is not."""

import hashlib
import shutil
from contextlib import asynccontextmanager

import pytest
from fakes import RawClient, decoded, run
from keys import bearer
from tailrace.proxy.gateway import running
from tailrace.proxy.ground import Places

KEYS = {"some": '["m*", "org/*", "lora"]', "none": "[]", "all": None}
MODELS = ["m", "m-2", "org/big", "secret", "lora"]


@asynccontextmanager
async def gateway_of(folder, plugins):
    """A gateway with four models, one of whose workers has an adapter besides."""
    worker = '{workers: ["http://127.0.0.1:1"]}'
    yaml = f"""
listen: [127.0.0.1:0]
state: {folder}/state
models: {{m: {worker}, m-2: {worker}, org/big: {worker}, secret: {worker}}}
plugins: {plugins}
"""
    try:
        async with running(decoded(yaml)) as process:
            pool = next(iter(process.pools.values()))
            pool.workers[0].standing.models = {"secret": "", "lora": "secret"}
            process._adapters_changed()
            async with RawClient(process.doors[0].shown) as client:
                yield client
    finally:
        shutil.rmtree(Places.of(folder / "state").shared, ignore_errors=True)


@asynccontextmanager
async def guarded(folder, more=""):
    file = folder / "keys.yaml"
    rows = []
    for key, models in KEYS.items():
        digest = hashlib.sha256(key.encode()).hexdigest()
        allowed = "" if models is None else f", models: {models}"
        rows.append(f"  - {{id: {key}, digest: {digest}, tenant: acme{allowed}}}\n")
    file.write_text("keys:\n" + "".join(rows))
    async with gateway_of(folder, f"[auth: {{keys: {file}{more}}}]") as client:
        yield client


def names(answer):
    return [model["id"] for model in answer.json()["data"]]


@pytest.mark.parametrize(("key", "seen"), [("all", MODELS), ("some", ["m", "m-2", "org/big", "lora"]), ("none", [])])
def test_a_key_sees_what_it_may_use(tmp_path, key, seen):
    async def body():
        async with guarded(tmp_path) as client:
            answer = await client.get("/v1/models", bearer(key))
            assert (answer.status, names(answer)) == (200, seen)
            for name in (*MODELS, "nothing"):
                answer = await client.get(f"/v1/models/{name}", bearer(key))
                if name in seen:
                    assert (answer.status, answer.json()["id"]) == (200, name)
                else:
                    error = answer.json()["error"]
                    assert (answer.status, error["code"], error["param"]) == (404, "model_not_found", "model")
                    assert error["message"] == f"The model '{name}' does not exist."

    run(body())


def test_the_parent_of_an_adapter_is_told_to_those_who_may_use_it(tmp_path):
    async def body():
        async with guarded(tmp_path) as client:
            for key, parent in (("all", "secret"), ("some", None)):
                assert (await client.get("/v1/models/lora", bearer(key))).json()["parent"] == parent
                listing = (await client.get("/v1/models", bearer(key))).json()["data"]
                assert [model["parent"] for model in listing if model["id"] == "lora"] == [parent]

    run(body())


def test_callers_without_a_key_see_what_anonymous_may_use(tmp_path):
    async def body():
        async with guarded(tmp_path, ', anonymous: {tenant: home, models: ["m"]}') as client:
            assert names(await client.get("/v1/models")) == ["m"]
            assert (await client.get("/v1/models/secret")).status == 404

    run(body())


def test_without_an_identity_everything_is_there(tmp_path):
    async def body():
        async with gateway_of(tmp_path, "[]") as client:
            assert names(await client.get("/v1/models")) == MODELS
            assert (await client.get("/v1/models/secret")).status == 200

    run(body())
