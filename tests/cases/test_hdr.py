"""Headers: what crosses, in each direction and on every route."""

from __future__ import annotations

import gzip
import zlib

import orjson
import pytest
import zstandard
from fakes import (
    RawClient,
    Upstream,
    answer,
    chat_answer,
    gateway,
    json_answer,
    run,
    sse_answer,
    stream_of,
    yaml_for,
)
from tailrace.proxy.headers import safe_value
from tailrace.proxy.routes import INFERENCE, Shape

from cases.scene import CHAT, PATH, STREAM, scene
from cases.test_hdr_addresses import FORGED

ROUTES = [route for route in INFERENCE if not route.pinned]
NAMES = [route.name for route in ROUTES]
FORM = b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\nm\r\n--b--\r\n'
FRAMING = ("content-length", "transfer-encoding")

CANARIES = {
    "Authorization": "Bearer canary-1",
    "x-api-key": "canary-2",
    "api-key": "canary-3",
    "X-Goog-Api-Key": "canary-4",
    "Cookie": "session=canary-5",
    "Proxy-Authorization": "Basic canary-6",
    "X-Forwarded-Authorization": "Bearer canary-7",
    "Ocp-Apim-Subscription-Key": "canary-8",
    "X-Auth-Token": "canary-9",
    "X-Amz-Security-Token": "canary-10",
    "X-Amzn-Oidc-Accesstoken": "canary-11",
    "X-Goog-Iap-Jwt-Assertion": "canary-12",
    "X-Client-Secret": "canary-13",
    "APIKEY": "canary-14",
}


def worker_of_any_route(conn, request):
    route = next(route for route in ROUTES if route.path == request.target.partition("?")[0])
    return conn.send(answer(200, b"{%b: []}" % route.expects))


async def ask(client, route, headers):
    """A good request of a route."""
    body = orjson.dumps({"model": "m"})
    headers = dict(headers)
    if route.shape is Shape.MULTIPART:
        body = FORM
        headers["content-type"] = "multipart/form-data; boundary=b"
    await client.request("POST", route.path, body, headers)
    return await client.read_answer()


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
        async with scene(json_answer(chat_answer("hi")), more="forward_headers: [x_tenant_token]") as s:
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
        async with scene(lost, json_answer(chat_answer("hi")), workers=2, more=more) as s:
            for _ in range(6):
                await s.ask(CHAT, headers=CANARIES | {"X-Tenant-Token": "wanted"})
            seen = [request for upstream in s.upstreams for request in upstream.requests]
            assert len(seen) >= 6
            assert all(b"canary" not in request.head for request in seen)
            assert all(request.header("x-tenant-token") == "wanted" for request in seen)

    run(body())


@pytest.mark.parametrize("accepts", [None, "gzip", "identity"])
def test_HDR_03_a_coded_answer_keeps_its_header_and_its_bytes(accepts):
    async def body():
        plain = orjson.dumps(chat_answer("hi"))
        coded = gzip.compress(plain)
        async with scene(answer(200, coded, headers=b"content-encoding: gzip\r\n")) as s:
            got = await s.ask(CHAT, headers={"accept-encoding": accepts} if accepts else {})
            assert (got.status, got.header("content-encoding"), got.body) == (200, "gzip", coded)
            assert got.header("content-length") == str(len(coded))
            assert s.upstream.requests[0].header("accept-encoding") == "identity"

    run(body())


def test_HDR_05_compressed_request_bodies():
    async def body():
        plain = orjson.dumps(CHAT)
        codings = {
            "gzip": gzip.compress(plain),
            "X-GZIP": gzip.compress(plain),
            "deflate": zlib.compress(plain),
            "zstd": zstandard.compress(plain),
            "identity": plain,
        }
        async with scene(json_answer(chat_answer("hi"))) as s:
            for coding, data in codings.items():
                got = await s.ask(data, headers={"content-encoding": coding})
                assert got.status == 200
                request = s.upstream.requests[-1]
                assert (request.body, request.header("content-encoding")) == (plain, None)
                assert request.header("content-length") == str(len(plain))
            for coding in ("br", "gzip, gzip", "compress", "x"):
                got = await s.ask(gzip.compress(gzip.compress(plain)), headers={"content-encoding": coding})
                assert (got.status, got.json()["error"]["code"]) == (415, "unsupported_encoding")
            assert len(s.upstream.requests) == len(codings)

    run(body())


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("plain-1.0/x", b"plain-1.0/x"),
        ("中", b"%E4%B8%AD"),
        ("50%", b"50%25"),
        ("a\r\nset-cookie: b", b"a%0D%0Aset-cookie: b"),
        ("\0\x7f", b"%00%7F"),
        ("x" * 300, b"x" * 256),
    ],
)
def test_HDR_08_any_text_as_a_header_value(text, value):
    assert safe_value(text) == value


def test_HDR_08_a_model_of_any_name_is_served():
    async def body():
        names = ["中文", "50%", "a b", "x" * 300]
        async with Upstream(json_answer(chat_answer("hi"))) as upstream:
            models = orjson.dumps({name: {"workers": [upstream.url]} for name in names}).decode()
            async with gateway(f"listen: 127.0.0.1:0\nmodels: {models}\n") as process:
                async with RawClient(process.doors[0].shown) as client:
                    for name in names:
                        assert (await client.post(PATH, CHAT | {"model": name})).status == 200
                    got = await client.post(PATH, CHAT | {"model": "a\r\nset-cookie: b"})
                    assert (got.status, got.header("set-cookie")) == (404, None)

    run(body())


def test_HDR_10_exactly_one_framing_header_each_way():
    async def body():
        async with scene(json_answer(chat_answer("hi")), sse_answer(stream_of(["a"]))) as s:
            client = await s.client()
            data = orjson.dumps(CHAT)
            await client.send(
                b"POST %b HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n"
                % (PATH.encode(), len(data), data)
            )
            unary = await client.read_answer()
            streamed = await client.post(PATH, STREAM)
            for got, framing in ((unary, "content-length"), (streamed, "transfer-encoding")):
                assert got.complete
                assert [name for name, _ in got.head.headers if name.lower() in FRAMING] == [framing]
            for request, sent in zip(s.upstream.requests, (data, orjson.dumps(STREAM)), strict=True):
                assert [name for name, _ in request.headers if name.lower() in FRAMING] == ["content-length"]
                assert (request.header("content-length"), request.body) == (str(len(sent)), sent)

    run(body())


MATRIX = {
    "Accept": "application/json",
    "User-Agent": "probe/1",
    "OpenAI-Organization": "org",
    "anthropic-version": "2023-06-01",
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "X-Custom": "kept",
    "X-Odd": "caf\xe9 \t x",
    "Idempotency-Key": "i-1",
    "Connection": "keep-alive, X-Hop",
    "X-Hop": "dropped",
    "Keep-Alive": "timeout=5",
    "Proxy-Connection": "keep-alive",
    "TE": "trailers",
    "Trailer": "x",
    "Accept-Encoding": "gzip",
    "X-Request-Id": "mine",
    "X-Tailrace-Worker": "steer",
    "Via": "1.1 x",
    **CANARIES,
    **FORGED,
}
OWN = ["host", "x-forwarded-for", "x-forwarded-proto", "x-request-id", "accept-encoding", "content-length"]


def test_HDR_11_one_policy_on_every_route():
    async def body():
        async with Upstream(worker_of_any_route) as upstream:
            async with gateway(yaml_for(upstream)) as process, RawClient(process.doors[0].shown) as client:
                answers = [await ask(client, route, MATRIX) for route in ROUTES]
            assert [got.status for got in answers] == [200] * len(ROUTES)
            seen = []
            for request in upstream.requests:
                names = [name.lower() for name, _ in request.headers]
                assert len(names) == len(set(names))
                kept = {n.lower(): v for n, v in request.headers if n.lower() not in (*OWN, "content-type")}
                seen.append(kept)
                assert request.header("x-request-id") != "mine"
                assert set(OWN) <= set(names)
            passed = ("accept", "user-agent", "openai-organization", "anthropic-version", "traceparent", "x-custom")
            wanted = {name.lower(): value for name, value in MATRIX.items() if name.lower() in passed}
            assert seen == [wanted | {"x-odd": MATRIX["X-Odd"], "idempotency-key": "i-1"}] * len(ROUTES)

    run(body())


def test_HDR_12_browser_facing_headers_of_workers_stay_behind():
    async def body():
        lines = (
            b"Set-Cookie: a=1\r\nSet-Cookie: b=2\r\nAccess-Control-Allow-Origin: *\r\n"
            b"Strict-Transport-Security: max-age=1\r\nServer: uvicorn\r\nx-request-id: theirs\r\n"
            b"Clear-Site-Data: *\r\nContent-Security-Policy: x\r\nReport-To: x\r\nAlt-Svc: h3\r\nX-Tailrace-Load: x\r\n"
            b"Keep-Alive: timeout=5\r\nX-Engine: vllm\r\nopenai-processing-ms: 5\r\n"
        )
        good = json_answer(chat_answer("hi"), headers=lines)
        async with scene(good, sse_answer(stream_of(["a"]), headers=lines)) as s:
            for request in (CHAT, STREAM):
                got = await s.ask(request)
                names = {name.lower() for name, _ in got.head.headers}
                assert names - {"cache-control", "x-accel-buffering", *FRAMING} == {
                    "content-type",
                    "x-request-id",
                    "x-upstream-request-id",
                    "x-engine",
                    "openai-processing-ms",
                }
                assert got.header("x-upstream-request-id") == "theirs"
                assert got.head.all("x-request-id")[0].startswith("req_")
                assert len(got.head.all("x-request-id")) == 1

    run(body())


@pytest.mark.parametrize(("size", "status"), [(9_000, 200), (30_000, 200), (70_000, 431)])
def test_HDR_14_long_tokens(size, status):
    async def body():
        async with scene(json_answer(chat_answer("hi"))) as s:
            got = await s.ask(CHAT, headers={"authorization": "Bearer " + "t" * size})
            assert got.status == status
            assert b"tttt" not in got.body

    run(body())


def test_HDR_14_the_limit_is_configurable():
    async def body():
        async with scene(json_answer(chat_answer("hi")), more="limits: {head: 128KiB}") as s:
            assert (await s.ask(CHAT, headers={"authorization": "Bearer " + "t" * 70_000})).status == 200

    run(body())
