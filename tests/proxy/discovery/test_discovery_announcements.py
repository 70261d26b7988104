"""What a gateway answers to sidecars that register, and to others who try."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from fakes import CHAT, GOOD, PATH, RawClient, Upstream, gateway, run, until
from sidecars import KEY, hop
from tailrace.proxy.discovery import announcement

WORKERS = announcement.PATH
YAML = f"""
listen: [127.0.0.1:0]
models: {{m: {{workers: [{{registered: g}}]}}, n: {{pool: p}}}}
pools: {{p: {{workers: [{{registered: {{group: g, lease: 30s}}}}, {{registered: h, region: us}}]}}}}
hop_key: {KEY}
"""
ONE = {"group": "g", "worker": "http://127.0.0.1:9"}


async def announce(process: Any, body: Any, headers: dict[str, str] | None = None) -> Any:
    async with RawClient(process.doors[0].shown) as client:
        return await client.post(WORKERS, body, hop() if headers is None else headers)


def names(process: Any, pool: str) -> list[str]:
    return [worker.name for worker in process.pools[pool].workers]


def test_who_registers_gets_calls_and_who_leaves_gets_none() -> None:
    async def body() -> None:
        async with Upstream(GOOD) as upstream, gateway(YAML) as process, RawClient(process.doors[0].shown) as client:
            me = {"group": "g", "worker": upstream.url}
            assert (await client.post(PATH, {"model": "m"})).status == 503
            answer = await announce(process, me)
            # The shorter of two.
            assert (answer.status, answer.json()) == (200, {"lease": 15.0})
            assert (await client.post(PATH, {"model": "m"})).status == 200
            assert (await client.post(PATH, {"model": "n"})).status == 200
            assert (await announce(process, me | {"leave": True})).status == 200
            assert names(process, "p") == []
            assert (await client.post(PATH, {"model": "m"})).status == 503

    run(body())


def test_who_comes_back_keeps_connections_again() -> None:
    async def body() -> None:
        async with Upstream(GOOD) as upstream, gateway(YAML) as process, RawClient(process.doors[0].shown) as client:
            me = {"group": "g", "worker": upstream.url}
            await announce(process, me)
            assert (await client.post(PATH, {"model": "m"})).status == 200
            await announce(process, me | {"leave": True})
            await until(lambda: upstream.closed_at)
            await announce(process, me)
            for _ in range(5):
                assert (await client.post(PATH, {"model": "m"})).status == 200
            (worker,) = process.workers()
            assert worker.connections.resting
            # One that carries the calls, and a spare.
            assert worker.connections.open <= 2

    run(body())


def test_a_pool_of_connections_that_was_closed_while_one_was_opened_goes_on() -> None:
    async def body() -> None:
        async with (
            Upstream(GOOD) as upstream,
            gateway(f"listen: [127.0.0.1:0]\nmodels: {{m: {{workers: ['{upstream.url}']}}}}\n") as process,
            RawClient(process.doors[0].shown) as client,
        ):
            assert (await client.post(PATH, CHAT)).status == 200
            (worker,) = process.workers()
            pool = worker.connections
            taken = pool.take()
            given_up = pool._spare
            assert taken is not None
            pool.close()
            pool.reopen()
            pool.rest(taken)
            # Another spare is opened in place of the one that was given up.
            assert pool.take() is taken
            assert pool._spare is not given_up
            pool.rest(taken)

    run(body())


def test_a_lease_that_lapses_removes_the_worker() -> None:
    async def body() -> None:
        async with gateway(YAML.replace("[{registered: g}]", "[{registered: {group: g, lease: 1s}}]")) as process:
            assert (await announce(process, ONE)).json() == {"lease": 1.0}
            assert names(process, "p") == [ONE["worker"]]
            await until(lambda: not names(process, "p"))

    run(body())


def test_weight_and_region_are_the_sidecars_own_or_the_pools() -> None:
    async def body() -> None:
        async with gateway(YAML) as process:
            await announce(process, {"group": "h", "worker": "http://127.0.0.1:8"})
            await announce(process, ONE | {"weight": 2, "region": "eu"})
            told = {worker.name: (worker.weight, worker.region) for worker in process.workers()}
            assert told == {"http://127.0.0.1:8": (1.0, "us"), "http://127.0.0.1:9": (2.0, "eu")}

    run(body())


@pytest.mark.parametrize(
    "headers", [{}, {"x-tailrace-hop": "1.2"}, hop("another-key-of-16")], ids=["none", "x", "other"]
)
def test_nobody_registers_without_the_hop_key(headers: dict[str, str]) -> None:
    async def body() -> None:
        async with gateway(YAML) as process:
            answer = await announce(process, ONE, headers)
            assert (answer.status, answer.json()["error"]["code"]) == (401, "hop_key_refused")
            assert names(process, "p") == []

    run(body())


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"{", "no JSON object"),
        (b"[]", "no JSON object"),
        (b" " * 5000 + orjson.dumps(ONE), "no JSON object"),
        ({"group": "g"}, "must be text"),
        ({"worker": "http://x"}, "must be text"),
        (ONE | {"worker": "ftp://x"}, "expected http://HOST:PORT"),
        (ONE | {"weight": 0}, "a number from 0.001 to 1000"),
        (ONE | {"weight": 1e308}, "a number from 0.001 to 1000"),
        (ONE | {"weight": True}, "a number from 0.001 to 1000"),
        (ONE | {"weight": "2"}, "a number from 0.001 to 1000"),
        (ONE | {"region": 3}, "`region` must be text"),
        (ONE | {"leave": 1}, "`leave` true or false"),
    ],
)
def test_what_is_no_registration_says_why(body: Any, why: str) -> None:
    async def main() -> None:
        async with gateway(YAML) as process:
            answer = await announce(process, body)
            assert (answer.status, answer.json()["error"]["code"]) == (400, "bad_registration")
            assert why in answer.json()["error"]["message"]
            assert names(process, "p") == []

    run(main())


def test_a_group_that_no_pool_takes() -> None:
    async def body() -> None:
        async with gateway(YAML) as process:
            answer = await announce(process, ONE | {"group": "x"})
            assert (answer.status, answer.json()["error"]["code"]) == (404, "unknown_group")
            assert "there are: g, h" in answer.json()["error"]["message"]

    run(body())


def test_a_gateway_that_takes_no_sidecars_has_no_such_path() -> None:
    async def body() -> None:
        plain = f"listen: [127.0.0.1:0]\nmodels: {{m: {{workers: [http://127.0.0.1:1]}}}}\nhop_key: {KEY}\n"
        async with gateway(plain) as process:
            assert (await announce(process, ONE)).status == 404

    run(body())


def test_a_group_without_room_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tailrace.proxy.discovery.registry.MOST", 0)

    async def body() -> None:
        async with gateway(YAML) as process:
            assert "no room" in (await announce(process, ONE)).json()["refused"]

    run(body())


def test_no_plugin_stands_before_a_registration() -> None:
    async def body() -> None:
        async with gateway(YAML + "plugins: ['refusing:Refusing']\n") as process:
            assert (await announce(process, ONE)).status == 200
            async with RawClient(process.doors[0].shown) as client:
                assert (await client.post(PATH, {"model": "m"})).status == 403

    run(body())
