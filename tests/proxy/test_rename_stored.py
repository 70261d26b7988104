"""Stored responses are answered under the name that they were asked for by."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from fakes import RawClient, Upstream, decoded, event, gateway, json_answer, run, sse_answer
from scrape import Scrape
from tailrace.proxy.gateway import GatewayProcess

PATH = "/v1/responses"
NAMES = {"one": "one", "two": "two", "plain": "engine"}
"""The models of the gateway, and the name that answers of each carry."""


def yaml(url: str, more: str = "") -> str:
    models = f"two: {{pool: p, as: engine, rename: true}}, plain: {{pool: p, as: engine}}{more}"
    return f"listen: [127.0.0.1:0]\npools: {{p: {{workers: ['{url}']}}}}\nmodels: {{{models}}}\n"


ONE = ", one: {pool: p, as: engine, rename: true}"


def response(number: int) -> dict[str, Any]:
    return {"id": f"resp_{number}", "object": "response", "model": "engine", "output": []}


def stored(act: Callable[[GatewayProcess, RawClient, dict[str, str], str], Awaitable[None]], *scripts: bytes) -> None:
    """Act on a gateway with a stored response of each model, by name."""

    async def main() -> None:
        made = [json_answer(response(number)) for number in range(len(NAMES))]
        async with Upstream(*made, *scripts) as upstream, gateway(yaml(upstream.url, ONE)) as process:
            async with RawClient(process.doors[0].shown) as client:
                ids = {}
                for name, carried in NAMES.items():
                    got = (await client.post(PATH, {"model": name, "input": "x"})).json()
                    assert got["model"] == carried
                    ids[name] = got["id"]
                await act(process, client, ids, upstream.url)

    run(main())


@pytest.mark.parametrize("name", NAMES)
def test_it_is_read_and_cancelled_under_that_name(name: str) -> None:
    async def act(process: GatewayProcess, client: RawClient, ids: dict[str, str], _: str) -> None:
        for got in (await client.get(f"{PATH}/{ids[name]}"), await client.post(f"{PATH}/{ids[name]}/cancel", {})):
            assert got.json() == {**response(7), "model": NAMES[name]}
        assert Scrape(process).value("requests_total", route="responses", model=name, code="200") == 3

    stored(act, json_answer(response(7)))


def test_it_is_streamed_under_that_name() -> None:
    last = {"type": "response.completed", "response": response(7)}

    async def act(_: GatewayProcess, client: RawClient, ids: dict[str, str], __: str) -> None:
        for name, carried in NAMES.items():
            got = await client.get(f"{PATH}/{ids[name]}?stream=true")
            assert got.complete
            assert [json.loads(line[6:]) for line in got.body.split(b"\n") if line.startswith(b"data:")] == [
                {**last, "response": {**response(7), "model": carried}}
            ]

    stored(act, sse_answer([event(last, "response.completed")]))


def test_it_outlives_its_model() -> None:
    """Then it is answered as the worker answers."""

    async def act(process: GatewayProcess, client: RawClient, ids: dict[str, str], url: str) -> None:
        await process.load(decoded(yaml(url)))
        for name, carried in {**NAMES, "one": "engine"}.items():
            assert (await client.get(f"{PATH}/{ids[name]}")).json()["model"] == carried

    stored(act, json_answer(response(7)))
