"""A request that comes back to a gateway is known by the hops that it names."""

from __future__ import annotations

import asyncio

import pytest
from fakes import CHAT, GOOD, PATH, RawClient, Upstream, decoded, gateway, run, yaml_for
from tailrace.proxy.headers import MOST_HOPS

from cases.scene import scene


@pytest.mark.parametrize(
    ("given", "seen"),
    [
        (None, ["1.1 tailrace"]),
        ("1.1 x", ["1.1 tailrace"]),
        ("1.1 tailrace, 1.0 fred (secret.internal)", ["1.1 tailrace", "1.1 tailrace"]),
        ("1.1 tailrace, 1.1 tailrace", ["1.1 tailrace", "1.1 tailrace, 1.1 tailrace"]),
    ],
)
def test_HDR_11_hops_are_counted_and_others_names_stay_here(given: str | None, seen: list[str]) -> None:
    async def body() -> None:
        async with scene(GOOD) as s:
            client = await s.client()
            answer = await client.post(PATH, CHAT, {} if given is None else {"via": given})
            assert answer.status == 200
            assert sorted(value for name, value in s.upstream.requests[0].headers if name == "via") == sorted(seen)

    run(body())


def test_HDR_11_a_gateway_that_is_its_own_worker_refuses_in_the_end() -> None:
    async def body() -> None:
        async with Upstream(GOOD) as worker, gateway(yaml_for(worker)) as process:
            url = process.doors[0].shown
            staged = await process.prepare(decoded(yaml_for(url)))
            staged.commit()
            async with RawClient(url) as client, asyncio.timeout(10):
                answer = await client.post(PATH, CHAT)
            assert answer.status == 508
            assert answer.json()["error"]["code"] == "loop_detected"
            assert len(worker.requests) == 0
            assert process.service.active == 0

    run(body())


def test_HDR_11_as_many_hops_as_there_may_be() -> None:
    async def body() -> None:
        async with scene(GOOD) as s:
            client = await s.client()
            most = ", ".join(["1.1 tailrace"] * (MOST_HOPS - 1))
            assert (await client.post(PATH, CHAT, {"via": most})).status == 200
            assert (await client.post(PATH, CHAT, {"via": most + ", 1.1 tailrace"})).status == 508

    run(body())
