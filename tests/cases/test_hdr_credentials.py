"""Headers: what callers prove themselves with stays here."""

from __future__ import annotations

import pytest
from fakes import GOOD, RawClient, Upstream, gateway, run, yaml_for

from cases.every_route import CANARIES, ROUTES, ask, worker_of_any_route
from cases.scene import CHAT, PATH, scene


@pytest.mark.parametrize("key", ["", "worker-key"])
def test_HDR_01_credentials_of_callers_reach_no_worker(key):
    async def body():
        async with Upstream(worker_of_any_route) as upstream:
            pool = f"pools: {{p: {{workers: ['{upstream.url}'], api_key: '{key}'}}}}" if key else ""
            yaml = yaml_for(upstream, more=pool)
            if key:
                yaml = yaml.replace(f'{{workers: ["{upstream.url}"]}}', "{pool: p}")
            async with gateway(yaml) as process, RawClient(process.doors[0].shown) as client:
                for route in ROUTES:
                    assert (await ask(client, route, CANARIES)).status == 200
            for request in upstream.requests:
                assert b"canary" not in request.head
                assert request.header("authorization") == (f"Bearer {key}" if key else None)
            assert len(upstream.requests) == len(ROUTES)

    run(body())


QUERIES = {
    "api_key=canary": "",
    "a=1&api_key=canary&b=%26": "a=1&b=%26",
    "API-Key=canary&&apikey=canary&a": "&a",
    "api%5Fkey=canary": "",
    "access_token=canary&token=canary&client_secret=canary&x-amz-security-token=canary": "",
    "+Api+key=1&api_key": "+Api+key=1",
    "password=canary&authorization=canary&key=a": "key=a",
    "page_token=a&next-token=b&tokens=4&monkey=5": "page_token=a&next-token=b&tokens=4&monkey=5",
    "x_tenant_token=wanted&x_other_token=canary": "x_tenant_token=wanted",
}


@pytest.mark.parametrize(("query", "left"), QUERIES.items(), ids=range(len(QUERIES)))
def test_HDR_01_credentials_in_a_query_stay_here(query, left):
    async def body():
        async with scene(GOOD, more="forward_headers: [x_tenant_token]") as s:
            for _ in range(2):
                assert (await s.ask(CHAT, f"{PATH}?{query}")).status == 200
            assert [request.target for request in s.upstream.requests] == [f"{PATH}?{left}"] * 2
            assert s.witness.calls[0].head.query == query.encode()

    run(body())


def test_HDR_01_credentials_reach_neither_the_second_worker_nor_a_path_that_is_passed_through():
    async def body():
        async def lost(conn, request):
            conn.rst()

        more = "forward_headers: [x-tenant-token]"
        async with scene(lost, GOOD, workers=2, more=more) as s:
            for _ in range(6):
                await s.ask(CHAT, headers=CANARIES | {"X-Tenant-Token": "wanted"})
            seen = [request for upstream in s.upstreams for request in upstream.requests]
            assert len(seen) >= 6
            assert all(b"canary" not in request.head for request in seen)
            assert all(request.header("x-tenant-token") == "wanted" for request in seen)

    run(body())
