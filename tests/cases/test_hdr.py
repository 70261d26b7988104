"""Headers: what crosses, in each direction and on every route."""

from __future__ import annotations

import orjson
from fakes import GOOD, RawClient, Upstream, chat_answer, gateway, json_answer, run, sse_answer, stream_of, yaml_for

from cases.every_route import CANARIES, ROUTES, ask, worker_of_any_route
from cases.scene import CHAT, PATH, STREAM, scene
from cases.test_hdr_addresses import FORGED

FRAMING = ("content-length", "transfer-encoding")


def test_HDR_10_exactly_one_framing_header_each_way():
    async def body():
        async with scene(GOOD, sse_answer(stream_of(["a"]))) as s:
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
OWN = ["host", "via", "x-forwarded-for", "x-forwarded-proto", "x-request-id", "accept-encoding", "content-length"]


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
