"""Authentication: nothing is outside the guard, and nothing of a credential leaves it."""

from __future__ import annotations

import signal

import pytest
from fakes import CHAT, GOOD, PATH, RawClient, Upstream, gateway, run, yaml_for
from keys import AUTH, bearer, create, guarded
from served import QUICK, engine, serving

from cases.every_route import ROUTES, ask, worker_of_any_route

ODD_PATHS = [
    "//v1/chat/completions",
    "/%761/chat/completions",
    "/v1//models",
    "/V1/models",
    "/v1/models/",
    "/x/../v1/models",
    "/invocations",
    "/metrics",
    "/debug",
    "/",
    "/v1/files",
    "/v1/models",
    "/v1/models/m",
    "/v1/responses/resp_1",
    "/health",
    "/x/auth/keys",
]


SERVED = {route.path for route in ROUTES} | {"/v1/models", "/v1/models/", "/v1/models/m", "/%761/chat/completions"}


@pytest.mark.parametrize("method", ["GET", "POST", "HEAD", "DELETE", "PUT", "OPTIONS"])
def test_AUT_14_routes_outside_the_guard(tmp_path, method):
    async def body():
        async with guarded(tmp_path) as s:
            for path in [*ODD_PATHS, *(route.path for route in ROUTES)]:
                async with RawClient(s.url) as client:
                    await client.request(method, path, b"" if method in ("GET", "HEAD") else b"{}")
                    answer = await client.read_answer(method=method)
                # Not even that a path is none is said to somebody unknown.
                preflight = method == "OPTIONS" and path in SERVED
                assert answer.status == (204 if preflight else 401), path
            assert not s.upstream.requests

    run(body())


def test_AUT_14_every_route_opens_to_a_key_and_health_to_all(tmp_path):
    key = create(tmp_path)

    async def body():
        async with guarded(tmp_path, "{}", worker_of_any_route) as s:
            for route in ROUTES:
                async with RawClient(s.url) as client:
                    assert (await ask(client, route, {})).status == 401
                async with RawClient(s.url) as client:
                    assert (await ask(client, route, bearer(key))).status == 200
            async with RawClient(s.url) as client:
                assert (await client.get("/healthz")).status == 200
                assert (await client.get("/readyz")).status == 200
                assert (await client.get("/nowhere", bearer(key))).status == 404
            assert len(s.upstream.requests) == len(ROUTES)

    run(body())


def test_AUT_14_a_preflight_needs_no_key_and_opens_nothing(tmp_path):
    async def body():
        passed = "routes: [{path: /extra, methods: [OPTIONS, GET], pool: p}]\npools: {p: {workers: [URL]}}\n"
        async with Upstream(worker_of_any_route) as upstream:
            more = f"state: {tmp_path}\n" + passed.replace("URL", f"'{upstream.url}'")
            async with gateway(yaml_for(upstream, plugins=f"[{AUTH}: {{}}]", more=more)) as process:
                async with RawClient(process.doors[0].shown) as client:
                    await client.request("OPTIONS", PATH)
                    assert (await client.read_answer()).status == 204
                    for path in ("/extra", "/v1/responses/resp_1", "/nowhere"):
                        await client.request("OPTIONS", path)
                        assert (await client.read_answer()).status == 401
                    await client.request("OPTIONS", "/extra", b"", {"access-control-request-method": "GET"})
                    assert (await client.read_answer()).status == 401
            assert not upstream.requests

    run(body())


def test_nothing_of_a_credential_reaches_worker_log_or_admin_port(tmp_path):
    state = tmp_path / "state"
    keys = {name: create(state, "--id", name) for name in ("good", "gone")}
    wrong = "tr_nobody_canary"

    async def body():
        async with Upstream(engine(GOOD)) as upstream:
            plugins = f"- access_log: {{file: log.jsonl}}\n- {AUTH}: {{single_key: canary-of-one-user}}"
            yaml = yaml_for(upstream, plugins=plugins, more=QUICK + f"state: {state}\n")
            async with serving(tmp_path, yaml) as it:
                shown = [*keys.values(), wrong, "canary-of-one-user"]
                for key in shown:
                    for headers in (bearer(key), {"x-api-key": key}, {**bearer(key), "x-api-key": "canary-2"}):
                        async with RawClient(it.url) as client:
                            await client.post(PATH, CHAT, headers)
                texts = [request.head for request in upstream.requests if request.method == "POST"]
                assert len(texts) == 6
                texts += [(await it.get(path)).body for path in ("/metrics", "/readyz", "/admin/config")]
                it.signal(signal.SIGTERM)
                await it.end()
                texts += ["\n".join(it.log).encode(), (tmp_path / "log.jsonl").read_bytes()]
                secrets = [key.rpartition("_")[2].encode() for key in keys.values()] + [b"canary"]
                assert not [text for text in texts for secret in secrets if secret in text]

    run(body(), limit=40)
