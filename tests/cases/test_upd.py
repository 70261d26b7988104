"""Upstream death mid-stream."""

from __future__ import annotations

import asyncio

import openai
import orjson
import pytest
from fakes import capture, chat_answer, chat_chunk, chunked, json_answer, run, sse_answer, sse_head
from tailrace.proxy.outcome import AttemptEnd, Ending
from tailrace.proxy.testing import answer as scripted_answer

from cases.scene import (
    CHAT,
    DONE,
    END,
    FINISH,
    PATH,
    ROLE,
    errors_of,
    framed,
    scene,
)
from cases.scripts import TEXT, dying


@pytest.mark.parametrize("how", ["rst", "fin", "clean", "malformed", "overlong"])
def test_UPD_01_dead_stream_is_not_dressed_up(how):
    async def body():
        async with scene(dying(TEXT, how)) as s:
            answer = await s.ask()
            assert answer.status == 200
            assert not answer.complete
            assert answer.body.startswith(b"".join(TEXT))
            assert b"[DONE]" not in answer.body
            assert [error["type"] for error in errors_of(answer.body)] == ["server_error"]
            assert answer.events[-1].json()["error"]["code"] in (
                "upstream_lost",
                "upstream_incomplete",
                "bad_upstream_answer",
            )
            outcome = await s.outcome()
            assert (outcome.ending, outcome.status) == (Ending.UPSTREAM_LOST, 502)
            assert s.witness.ends == [AttemptEnd.FAILED]

    run(body())


@pytest.mark.parametrize("how", ["rst", "fin", "clean", "malformed"])
def test_UPD_01_dead_before_any_event(how):
    async def body():
        async with scene(dying([], how)) as s:
            answer = await s.ask()
            assert answer.status == 502
            assert answer.json()["error"]["type"] == "server_error"
            assert (await s.outcome()).ending is Ending.FAILED
            assert len(s.upstream.requests) == 1

    run(body())


@pytest.mark.parametrize("how", ["rst", "fin", "clean"])
def test_UPD_01_official_sdk_raises(how):
    async def body():
        async with scene(dying(TEXT, how)) as s:
            client = openai.AsyncOpenAI(base_url=s.url + "/v1", api_key="k", max_retries=0)
            texts = []
            with pytest.raises(openai.APIError):
                stream = await client.chat.completions.create(model="m", messages=CHAT["messages"], stream=True)
                async for chunk in stream:
                    texts.append(chunk.choices[0].delta.content)  # noqa: PERF401 - what came before the error counts
            assert texts == ["", "one", "two", "three"]
            await client.close()

    run(body())


@pytest.mark.parametrize("how", ["rst", "fin", "clean"])
def test_UPD_02_cut_inside_an_event(how):
    half = chat_chunk("four")[:40]

    async def body():
        async with scene(dying([*TEXT, half], how)) as s:
            answer = await s.ask()
            assert not answer.complete
            assert answer.body == b"".join([*TEXT, half]), "nothing of the gateway's own inside an event"

    run(body())


def test_UPD_02_clean_end_after_a_finish_reason_is_one():
    pieces = [*TEXT, FINISH]

    async def body():
        async with scene(dying(pieces, "clean")) as s:
            answer = await s.ask()
            assert answer.complete
            assert answer.body == b"".join(pieces)
            assert (await s.outcome()).ending is Ending.COMPLETED

    run(body())


def test_UPD_02_http_1_0_client_can_tell():
    """Without chunks, the end of the connection is the end of the answer: only an error event or a reset can tell."""

    async def body():
        async with scene(dying(TEXT, "fin"), dying([*TEXT, b'data: {"id'], "fin")) as s:
            client = await s.client()
            await client.request("POST", PATH, b'{"model":"m","stream":true}', version="1.0")
            assert errors_of(await client.read_until_close())
            client = await s.client()
            await client.request("POST", PATH, b'{"model":"m","stream":true}', version="1.0")
            with pytest.raises(ConnectionResetError):
                while await client.read_some():
                    pass

    run(body())


def test_UPD_02_engine_killed_mid_stream():
    """What a real vLLM sends when its engine dies: an error event, then `[DONE]` and a clean end."""
    raw = capture("sigkill_enginecore_midstream.http")

    async def body():
        async with scene(raw) as s:
            answer = await s.ask()
            assert not answer.complete
            assert b"[DONE]" not in answer.body
            assert [error["code"] for error in errors_of(answer.body)] == [500]
            assert b'"content":"' in answer.body
            outcome = await s.outcome()
            assert (outcome.ending, outcome.status) == (Ending.UPSTREAM_LOST, 500)
            assert s.witness.ends == [AttemptEnd.FAILED]

    run(body())


@pytest.mark.parametrize(
    ("how", "declared"), [("length", b"content-length: 1000"), ("chunked", b"transfer-encoding: chunked")]
)
@pytest.mark.parametrize("rst", [False, True])
def test_UPD_05_short_json_body(how, declared, rst):
    async def short(conn, request):
        data = b'{"choices": [' + b" " * 387
        await conn.send(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n" + declared + b"\r\n\r\n")
        await conn.send(data if how == "length" else chunked(data))
        await asyncio.sleep(0.02)
        conn.rst() if rst else conn.close()

    async def body():
        async with scene(short) as s:
            answer = await s.ask(CHAT)
            assert answer.status == 502
            assert answer.json()["error"]["code"] == "upstream_lost"
            assert (await s.outcome()).ending is Ending.FAILED
            assert len(s.upstream.requests) == 1

    run(body())


ODD = orjson.dumps(chat_answer("hello"))[:-1]


@pytest.mark.parametrize("cut", [ODD, ODD[:-1], ODD[:-40], ODD[:200]])
def test_UPD_05_json_that_its_engine_did_not_finish(cut):
    """The framing says that it is whole."""

    async def body():
        async with scene(scripted_answer(200, cut)) as s:
            got = await s.ask(CHAT)
            assert got.status == 502
            assert "its JSON is cut" in got.json()["error"]["message"]

    run(body())


@pytest.mark.parametrize("odd", [ODD + b"} \r\n", ODD + b',"x":NaN}', ODD + b"}}", ODD + b',"x":"\xff"}'])
def test_UPD_05_json_that_is_odd_but_no_shorter_reaches_its_client(odd):
    async def body():
        async with scene(scripted_answer(200, odd)) as s:
            got = await s.ask(CHAT)
            assert (got.status, got.body) == (200, odd)

    run(body())


@pytest.mark.parametrize(
    "bad", [b'data: {"id":\n\n', b"data: hello\n\n", b"data: \x00\n\n", b"data: \xff\xfe{\n\n", b'data: ["error"]\n\n']
)
@pytest.mark.parametrize("plugin", ["Witness", "Tapped", "Editing"])
def test_UPD_10_garbage_event(bad, plugin, caplog):
    pieces = [bad, ROLE, bad, chat_chunk("hi"), bad, FINISH, bad, DONE]

    async def body():
        async with scene(sse_answer(pieces), plugins=f"[cases.witness:{plugin}]") as s:
            answer = await s.ask()
            assert answer.complete
            assert answer.body == b"".join(pieces)
            assert (await s.outcome()).ending is Ending.COMPLETED

    run(body())
    assert not caplog.records


def test_UPD_04_unary_answer_then_more():
    """Bytes behind an answer are never shown to anybody."""

    async def body():
        async with scene(
            json_answer(chat_answer("a")) + json_answer(chat_answer("smuggled")), json_answer(chat_answer("b"))
        ) as s:
            client = await s.client()
            texts = [(await client.post(PATH, CHAT)).json()["choices"][0]["message"]["content"] for _ in range(3)]
            assert texts == ["a", "b", "b"]

    run(body())


@pytest.mark.parametrize("pieces", [[ROLE, chat_chunk("one")], [ROLE, chat_chunk("one"), FINISH]])
@pytest.mark.parametrize("framing", ["chunked", "length", "close"])
def test_UPD_02_content_and_end_in_one_read(pieces, framing):
    """The read that commits may also end the answer; nothing waits for more."""
    data = b"".join(pieces)
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"

    async def script(conn, request):
        if framing == "chunked":
            await conn.send(sse_head() + framed(pieces) + END)
        elif framing == "length":
            await conn.send(head + b"content-length: %d\r\n\r\n" % len(data) + data)
        else:
            await conn.send(head + b"\r\n" + data)
            conn.close()

    async def body():
        async with scene(script, more="heartbeat: 0") as s:
            answer = await s.ask()
            if FINISH in pieces:
                assert (answer.body, answer.complete) == (data, True)
                assert s.process.service.clock.now - s.witness.calls[0].beaten_at < 1.0, "it waited for a grace"
            else:
                assert answer.body.startswith(data)
                assert not answer.complete
                assert errors_of(answer.body)

    run(body())


def test_UPD_05_large_unary_answer_whole_in_its_last_read():
    """An answer above the bound that is held back is committed and ended in one read."""
    text = "x" * (1 << 20)

    async def body():
        async with scene(json_answer(chat_answer(text))) as s:
            answer = await s.ask(CHAT)
            assert answer.complete
            assert answer.json()["choices"][0]["message"]["content"] == text

    run(body())
