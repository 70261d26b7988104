"""Errors of the gateway's own: always in the shape of the API, with a request id, without the input."""

from __future__ import annotations

import asyncio

import pytest
from fakes import GOOD, RawClient, chat_chunk, chunked, event, run, sse_head

from cases.edge import answers_in, check_error, post
from cases.scene import PATH, STREAM, scene
from cases.witness import Witness

MESSAGES = "/v1/messages"


class Broken(Witness):
    """Fails where it is told."""

    async def on_request(self, call):
        raise RuntimeError("the secret is sesame")


def hostile(path):
    """Requests that the gateway itself refuses, each with the status it must get."""
    big = b"x" * 70_000
    return {
        "invalid JSON": (post(body=b'{"secret"', lines=b"content-length: 9\r\n", path=path), 400),
        "not an object": (post(body=b"[42]", lines=b"content-length: 4\r\n", path=path), 400),
        "unknown model": (post(body=b'{"model":"x"}', lines=b"content-length: 13\r\n", path=path), 404),
        "no model": (post(body=b"{}", lines=b"content-length: 2\r\n", path=path), 400),
        "unknown path": (post(path=path + "/secret-x"), 404),
        "wrong method": (b"GET %b HTTP/1.1\r\nhost: a\r\n\r\n" % path.encode(), 405),
        "wrong content type": (post(b"content-length: 2\r\n", b"{}", path=path).replace(b"n/json", b"n/xml"), 415),
        "too large": (post(b"content-length: 99999999999\r\n", b"", path=path), 413),
        "head too large": (post(b"authorization: secret" + big + b"\r\n", path=path), 431),
        "no host": (post(path=path).replace(b"host: a\r\n", b""), 400),
        "bad length": (post(b"content-length: secret\r\n", path=path), 400),
        "bad chunk": (post(b"transfer-encoding: chunked\r\n", b"secret\r\n", path=path), 400),
        "expectation": (post(b"expect: secret\r\ncontent-length: 2\r\n", b"{}", path=path), 417),
    }


@pytest.mark.parametrize("name", hostile(PATH))
@pytest.mark.parametrize("path", [PATH, MESSAGES])
def test_ERR_10_the_gateways_own_errors_have_the_apis_shape(name, path):
    async def body():
        data, status = hostile(path)[name]
        async with scene(GOOD) as s:
            async with RawClient(s.url) as client:
                await client.send(data.replace(b"host: a\r\n", b"host: a\r\nconnection: close\r\n"))
                (shown,) = answers_in(await client.read_until_close())
            assert shown.status == status
            check_error(shown, anthropic=path == MESSAGES)
            assert b"secret" not in shown.body.replace(b"/secret-x", b"")
            assert s.upstream.requests == []

    run(body())


@pytest.mark.parametrize("path", [PATH, MESSAGES])
def test_ERR_10_a_plugin_that_crashes(path, caplog):
    async def body():
        async with scene(GOOD, plugins=f"[{__name__}:Broken]") as s:
            async with RawClient(s.url) as client:
                await client.send(post(path=path).replace(b"host: a\r\n", b"host: a\r\nconnection: close\r\n"))
                (shown,) = answers_in(await client.read_until_close())
            assert shown.status in (500, 503)
            check_error(shown, anthropic=path == MESSAGES)
            assert b"sesame" not in shown.body

    run(body())
    assert any("the secret is sesame" in str(record.exc_info) for record in caplog.records)


@pytest.mark.parametrize("path", [PATH, MESSAGES])
def test_ERR_10_no_worker_to_be_had(path):
    async def body():
        async with scene(GOOD) as s:
            s.upstream.refuse()
            async with RawClient(s.url) as client:
                await client.send(post(path=path).replace(b"host: a\r\n", b"host: a\r\nconnection: close\r\n"))
                (shown,) = answers_in(await client.read_until_close())
            assert (shown.status, shown.headers["retry-after"]) == (503, "1")
            check_error(shown, anthropic=path == MESSAGES)

    run(body())


@pytest.mark.parametrize("path", [PATH, MESSAGES])
def test_ERR_10_an_error_inside_a_stream(path):
    async def body():
        async def cut(conn, request):
            if request.target == PATH:
                content = chat_chunk("a")
            else:
                delta = {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "a"}}
                content = event(delta, "content_block_delta")
            await conn.send(sse_head() + chunked(content))
            conn.rst()

        async with scene(cut) as s:
            got = await s.ask(STREAM, path)
            assert not got.complete
            last = got.events[-1]
            assert last.name == (b"error" if path == MESSAGES else b"")
            assert set(last.json()) == ({"type", "error", "request_id"} if path == MESSAGES else {"error"})
            assert b"[DONE]" not in got.body

    run(body())


STRANGE = [
    event({"error": {"message": "boom", "type": "InternalServerError", "param": None, "code": 503}}),
    event({"type": "error", "error": {"type": "overloaded_error", "message": "boom"}}),  # without the event's name
    event({"error": {"message": "boom", "code": 503}}, "error"),
    event({"type": "error", "error": {"type": "internal_error", "message": "boom"}}, "error"),  # vLLM's own type
]


@pytest.mark.parametrize("strange", STRANGE)
@pytest.mark.parametrize("split", [False, True])
def test_ERR_10_an_engines_error_event_in_a_shape_that_the_sdk_passes_over(strange, split):
    delta = {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "a"}}
    content = event(delta, "content_block_delta")

    async def fails(conn, request):
        await conn.send(sse_head() + chunked(content))
        for piece in (strange[:20], strange[20:]) if split else (strange,):
            await asyncio.sleep(0.02)
            await conn.send(chunked(piece))
        await conn.wait_closed()

    async def body():
        async with scene(fails) as s:
            got = await s.ask(STREAM, MESSAGES)
            assert not got.complete
            last = got.events[-1]
            assert last.name == b"error"
            assert set(last.json()) == {"type", "error", "request_id"}
            assert last.json()["error"]["message"] == "boom"
            assert last.json()["error"]["type"] in ("api_error", "overloaded_error")
            assert len(got.events) == (3 if split else 2)

    run(body())


def test_ERR_10_an_engines_error_event_in_the_apis_own_shape_stays_as_it_is():
    told = event({"type": "error", "error": {"type": "overloaded_error", "message": "boom"}}, "error")
    delta = {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "a"}}

    async def fails(conn, request):
        await conn.send(sse_head() + chunked(event(delta, "content_block_delta")) + chunked(told))
        await conn.wait_closed()

    async def body():
        async with scene(fails) as s:
            assert (await s.ask(STREAM, MESSAGES)).body.endswith(told)

    run(body())
