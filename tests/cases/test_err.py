"""Errors: what a worker says, what the gateway says, and in whose shape."""

from __future__ import annotations

import asyncio

import pytest
from fakes import GOOD, answer, chunked, event, run, sse_answer
from tailrace.proxy.fault import Whose

from cases.scene import CHAT, STREAM, scene

MESSAGES = "/v1/messages"
HTML = b"<html><body><h1>502 Bad Gateway</h1></body></html>"


@pytest.mark.parametrize(("code", "status"), [(400, 400), (404, 404), (429, 429), (503, 503), (None, 502), ("x", 502)])
def test_ERR_01_refusal_as_the_first_event_of_a_stream(code, status):
    async def body():
        error = {"error": {"message": "the prompt is too long", "type": "BadRequestError", "code": code}}
        async with scene(sse_answer([event(error), event("[DONE]")])) as s:
            got = await s.ask(STREAM)
            assert (got.status, got.header("content-type")) == (status, "application/json")
            assert got.json()["error"]["message"] == "the prompt is too long"
            fault = (await s.outcome()).fault
            assert fault.whose is (Whose.CLIENT if status in (400, 404) else Whose.ENGINE)

    run(body())


def test_ERR_01_also_where_messages_are_spoken():
    async def body():
        error = {"type": "error", "error": {"type": "invalid_request_error", "message": "too long"}}
        async with scene(sse_answer([event(error, "error")])) as s:
            got = await s.ask(STREAM, MESSAGES)
            assert got.status == 502
            assert (got.json()["type"], got.json()["error"]["message"]) == ("error", "too long")

    run(body())


@pytest.mark.parametrize("request_body", [CHAT, STREAM], ids=["unary", "stream"])
@pytest.mark.parametrize("retry", [b"", b"Retry-After: 7\r\n"])
@pytest.mark.parametrize("status", [502, 503, 404])
def test_ERR_02_html_from_a_load_balancer(request_body, retry, status):
    async def body():
        async with scene(answer(status, HTML, "text/html", retry)) as s:
            got = await s.ask(request_body)
            # Where the gateway knows the path, 404 is no word of an engine, and nothing a client can mend.
            shown = 502 if status == 404 else status
            assert (got.status, got.header("content-type")) == (shown, "application/json")
            assert b"<html" not in got.body
            assert b"Bad Gateway" not in got.body
            assert set(got.json()["error"]) == {"message", "type", "param", "code"}
            if retry:
                assert got.header("retry-after") == "7"
            assert (await s.outcome()).fault.whose is Whose.ENGINE

    run(body())


def test_ERR_03_a_useful_json_error_stays_what_it_is():
    async def body():
        loading = b'{"error":{"message":"loading","code":"model_loading"}}'
        async with scene(answer(503, loading, headers=b"Retry-After: 2\r\n")) as s:
            got = await s.ask(CHAT)
            assert (got.status, got.body, got.header("retry-after")) == (503, loading, "2")

    run(body())


@pytest.mark.parametrize("status", [400, 422])
def test_ERR_04_a_callers_mistake_is_not_the_workers(status):
    async def body():
        refusal = b'{"error": {"message":"max_tokens must be at least 1, got -5.","type":"BadRequestError","code":400}}'

        async def picky(conn, request):
            await conn.send(answer(status, refusal) if request.json().get("max_tokens") else GOOD)

        async with scene(picky) as s:
            for _ in range(20):
                got = await s.ask(CHAT | {"max_tokens": -5})
                assert (got.status, got.body) == (status, refusal)
            assert (await s.ask(CHAT)).status == 200
            assert len(s.upstream.requests) == 21
            assert {outcome.fault.whose for outcome in s.witness.outcomes[:20]} == {Whose.CLIENT}
            assert not any(outcome.fault.retryable for outcome in s.witness.outcomes[:20])

    run(body())


TYPES = {400: "invalid_request_error", 404: "not_found_error", 413: "request_too_large", 422: "invalid_request_error",
         429: "rate_limit_error", 500: "api_error", 503: "overloaded_error"}  # fmt: skip


@pytest.mark.parametrize("request_body", [CHAT, STREAM], ids=["unary", "stream"])
@pytest.mark.parametrize("kind", [b'"BadRequestError"', b"[7]", b"null"])
@pytest.mark.parametrize("status", TYPES)
def test_ERR_04_an_engines_own_type_of_error_is_none_of_anthropics(status, kind, request_body):
    told = b'{"type":"error","error":{"type":%b,"message":"no \xc3\xbc"}}' % kind

    async def body():
        async with scene(answer(status, told)) as s:
            got = await s.ask(request_body, MESSAGES)
            error = {"type": TYPES[status], "message": "no \u00fc"}
            said = {"type": "error", "error": error, "request_id": got.header("x-request-id")}
            assert (got.status, got.json()) == (status, said)
            # Elsewhere an engine's error is what it was.
            assert (await s.ask(request_body)).body == told

    run(body())


def test_ERR_04_a_type_of_anthropics_stays_and_gets_our_id():
    told = b'{"type":"error","error":{"type":"overloaded_error","message":"busy"},"request_id":"theirs"}'

    async def body():
        async with scene(answer(500, told)) as s:
            got = await s.ask(CHAT, MESSAGES)
            error = {"type": "overloaded_error", "message": "busy"}
            assert got.json() == {"type": "error", "error": error, "request_id": got.header("x-request-id")}

    run(body())


def test_ERR_06_hints_for_a_later_try_are_kept():
    async def body():
        lines = (
            b"Retry-After: 30\r\nretry-after-ms: 30000\r\nx-should-retry: true\r\n"
            b"x-ratelimit-remaining-requests: 0\r\nanthropic-ratelimit-tokens-reset: 9\r\nx-other: no\r\n"
        )
        limited = b'{"error":{"message":"slow down","type":"rate_limit","code":429}}'
        async with scene(answer(429, limited, headers=lines)) as s:
            got = await s.ask(CHAT)
            assert (got.status, got.body) == (429, limited)
            assert got.header("retry-after") == "30"
            assert got.header("retry-after-ms") == "30000"
            assert got.header("x-should-retry") == "true"
            assert got.header("x-ratelimit-remaining-requests") == "0"
            assert got.header("anthropic-ratelimit-tokens-reset") == "9"
            assert got.head.all("retry-after") == ["30"]

    run(body())


@pytest.mark.parametrize("framing", ["length", "chunked", "until close"])
def test_ERR_08_an_error_body_without_end(framing):
    async def body():
        total = 150_000_000
        sent = []

        async def endless(conn, request):
            head = {"length": b"content-length: %d\r\n" % total, "chunked": b"transfer-encoding: chunked\r\n"}
            await conn.send(b"HTTP/1.1 400 X\r\ncontent-type: application/json\r\n" + head.get(framing, b"") + b"\r\n")
            block = b'{"error":"' + b"secret" * 10_000
            for _ in range(total // len(block)):
                await conn.send(chunked(block) if framing == "chunked" else block)
                sent.append(len(block))

        async with scene(endless) as s:
            calls = [s.ask(CHAT) for _ in range(20)]
            for got in await asyncio.gather(*calls):
                assert (got.status, got.json()["error"]["code"]) == (400, "invalid_request_error")
                assert len(got.body) < 1000
                assert b"secret" not in got.body
            # What is read is the cap and what the kernel had by then, of the 3 GB that were on offer.
            assert sum(sent) < 20 * 8_000_000

    run(body())


LOST = {
    "html": answer(200, HTML, "text/html"),
    "large html": answer(200, HTML * 40_000, "text/html"),
    "another object": answer(200, b'{"html-message":"lost"}'),
    "a list": answer(200, b"[]"),
    "empty": answer(200, b""),
    "no content": b"HTTP/1.1 204 No Content\r\n\r\n",
    "redirect": b"HTTP/1.1 302 Found\r\nlocation: http://evil/\r\ncontent-length: 0\r\n\r\n",
    "not modified": b"HTTP/1.1 304 Not Modified\r\n\r\n",
    "cut JSON": b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n" + b'{"choices":[',
    "empty stream": sse_answer([]),
    "only a comment": sse_answer([b": hello\n\n"]),
    "only the end": sse_answer([event("[DONE]")]),
    "html as a stream": sse_answer([HTML]),
}


@pytest.mark.parametrize("request_body", [CHAT, STREAM], ids=["unary", "stream"])
@pytest.mark.parametrize("data", LOST.values(), ids=LOST)
def test_ERR_12_200_that_is_no_completion(data, request_body):
    async def body():
        async def script(conn, request):
            await conn.send(data)
            conn.fin()

        async with scene(script) as s:
            got = await s.ask(request_body)
            assert got.status == 502
            assert got.json()["error"]["type"] == "server_error"
            assert b"<html" not in got.body
            assert got.header("location") is None
            assert (await s.outcome()).fault.whose in (Whose.ENGINE, Whose.NETWORK)

    run(body())


def test_ERR_12_plain_text_is_an_answer_where_the_api_has_it():
    async def body():
        async with scene(answer(200, b"hello\n", "text/plain")) as s:
            assert (await s.ask(CHAT)).status == 502

    run(body())


def test_ERR_13_nobody_is_there():
    async def body():
        async with scene(GOOD) as s:
            worker = s.process.pools["model:m"].workers[0]
            worker.standing.ready = False
            worker.changed()
            got = await s.ask(CHAT)
            assert (got.status, got.json()["error"]["code"]) == (503, "no_worker_available")
            assert int(got.header("retry-after")) >= 1
            assert (await s.outcome()).fault.whose is Whose.GATEWAY
            got = await s.ask(CHAT | {"model": "x"})
            assert (got.status, got.json()["error"]["code"]) == (404, "model_not_found")
            assert s.witness.outcomes[-1].fault.whose is Whose.CLIENT
            worker.standing.ready = True
            worker.changed()
            assert (await s.ask(CHAT)).status == 200

    run(body())
