"""Upstream death mid-stream."""

from __future__ import annotations

import asyncio

import openai
import pytest
from fakes import capture, chat_answer, chat_chunk, chunked, event, json_answer, run, sse_answer, sse_head, stream_of
from tailrace.proxy.outcome import AttemptEnd, Ending

from cases.scene import (
    CHAT,
    DONE,
    END,
    FINISH,
    PATH,
    ROLE,
    STREAM,
    closed_promptly,
    errors_of,
    framed,
    scene,
)

ERROR = event({"error": {"message": "boom", "type": "InternalServerError", "param": None, "code": 503}})
GOOD = stream_of(["a", "b"])
TEXT = [ROLE, chat_chunk("one"), chat_chunk("two"), chat_chunk("three")]


def dying(pieces, how):
    async def script(conn, request):
        await conn.send(sse_head() + framed(pieces))
        await asyncio.sleep(0.02)
        if how == "rst":
            conn.rst()
        elif how == "fin":
            conn.close()
        elif how == "clean":
            await conn.send(END)
        elif how == "malformed":
            await conn.send(b"zz\r\nwhat\r\n")
        elif how == "overlong":
            await conn.send(b"3\r\nabcdef\r\n")

    return script


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


@pytest.mark.parametrize("together", [True, False])
def test_UPD_06_prelude_then_failure(together):
    """Nothing is committed before content, so the failure is still a status."""

    async def prelude(conn, request):
        await conn.send(sse_head() + chunked(ROLE) + (chunked(ERROR) if together else b""))
        await asyncio.sleep(0.02)
        if not together:
            await conn.send(chunked(ERROR) + chunked(DONE) + END)
        await conn.wait_closed()

    async def body():
        async with scene(prelude) as s:
            answer = await s.ask()
            assert answer.status == 503
            assert answer.json()["error"]["message"] == "boom"
            assert s.witness.heads == [(s.witness.calls[0].id, 503)]
            await closed_promptly(s.upstream)

    run(body())


@pytest.mark.parametrize("first", ["prelude", "silence", "rst", "http"])
def test_UPD_06_prelude_then_failure_moves_on(first):
    """With a policy that moves on, the second worker's stream is served whole, with one prelude."""

    async def failing(conn, request):
        if first == "prelude":
            await conn.send(sse_head() + framed([ROLE, ERROR, DONE]) + END)
        elif first == "silence":
            await conn.send(sse_head() + framed([b": wait\n\n", ROLE]) + END)
        elif first == "rst":
            await conn.send(sse_head() + framed([ROLE]))
            await asyncio.sleep(0.02)
            conn.rst()
        else:
            await conn.send(json_answer({"error": {"message": "busy"}}, 503))

    async def body():
        async with scene(failing, sse_answer(GOOD), plugins="[cases.policies:MoveOn, cases.witness:Witness]") as s:
            answer = await s.ask()
            assert answer.complete
            assert answer.body == b"".join(GOOD)
            assert s.witness.ends == [AttemptEnd.FAILED, AttemptEnd.WON]
            assert (await s.outcome()).ending is Ending.COMPLETED
            assert [attempt.why for attempt in s.witness.attempts] == ["first", "retry"]

    run(body())


def test_UPD_06_hold_back_is_bounded():
    """Comments and preludes for ever are not held back for ever: past the bound they are shown."""
    many = [b": " + b"x" * 1000 + b"\n\n"] * 80

    async def body():
        async with scene(sse_answer([ROLE, *many, *GOOD[1:]])) as s:
            answer = await s.ask()
            assert answer.complete
            assert answer.body == b"".join([ROLE, *many, *GOOD[1:]])

    run(body())


@pytest.mark.parametrize("as_one_chunk", [True, False])
def test_UPD_08_content_and_error_in_one_read(as_one_chunk):
    pieces = [ROLE, chat_chunk("hi"), ERROR, DONE]
    sent = [b"".join(pieces)] if as_one_chunk else pieces

    async def body():
        async with scene(sse_head() + framed(sent) + END, sse_head() + framed([ROLE + ERROR + DONE]) + END) as s:
            answer = await s.ask()
            assert answer.status == 200
            assert not answer.complete
            assert answer.body == b"".join(pieces[:3])
            answer = await s.ask()
            assert answer.status == 503

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


BEFORE = ["on_open", "on_request", "score_workers", "on_chosen", "patience", "judge", "on_answer", "on_stream"]
AFTER = ["tap.first", "tap.feed", "tap.finish"]
HARMLESS = ["on_attempt_end", "on_complete"]


async def slowly(conn, request):
    await conn.send(sse_head() + chunked(ROLE))
    for text in ("one", "two"):
        await conn.send(chunked(chat_chunk(text)))
        await asyncio.sleep(0.02)
    await conn.send(framed([FINISH, DONE]) + END)


async def status_lines(scene, body):
    """Everything that one connection gets for a call; it must hold one status line."""
    client = await scene.begin(body)
    await client.send(b"")
    data = await client.read_until_close()
    assert data.count(b"HTTP/1.1 ") == 1, data
    return data


@pytest.mark.parametrize("reject", [False, True])
@pytest.mark.parametrize("phase", BEFORE)
def test_UPD_04_plugin_fails_before_the_answer(phase, reject):
    config = f"{{phase: {phase}, reject: {str(reject).lower()}}}"

    async def body():
        async with scene(slowly, plugins=f"[cases.witness:Witness, {{cases.broken:Fails: {config}}}]") as s:
            for count in (1, 2):
                answer = await s.ask(CHAT if phase == "on_stream" else STREAM)
                assert answer.status == (418 if reject else 500)
                assert answer.complete
                assert (await s.outcome(count)).status == answer.status
                await s.at_rest()

    run(body())


@pytest.mark.parametrize("phase", AFTER)
def test_UPD_04_plugin_fails_after_the_head(phase):
    async def body():
        async with scene(slowly, plugins=f"[cases.witness:Witness, {{cases.broken:Fails: {{phase: {phase}}}}}]") as s:
            data = await status_lines(s, STREAM)
            assert not data.endswith(END)
            # Behind [DONE] no event would be read.
            assert (b'"internal_error"' in data) == (phase != "tap.finish")
            outcome = await s.outcome()
            assert (outcome.ending, outcome.status) == (Ending.FAILED, 500)
            assert s.witness.ends == [AttemptEnd.FAILED]

    run(body())


@pytest.mark.parametrize("phase", HARMLESS)
def test_UPD_04_failing_listener_changes_nothing(phase):
    async def body():
        async with scene(
            json_answer({"error": {"message": "x"}}, 500),
            slowly,
            plugins=f"[cases.witness:Witness, {{cases.broken:Fails: {{phase: {phase}}}}}]",
        ) as s:
            assert (await s.ask()).status == 500
            answer = await s.ask()
            assert answer.complete
            assert (await s.outcome(2)).ending is Ending.COMPLETED
            assert s.witness.ends == [AttemptEnd.FAILED, AttemptEnd.WON]

    run(body())


@pytest.mark.parametrize("phase", ["next_target", "allow"])
def test_UPD_04_failing_policy_ends_the_call(phase):
    plugins = f"[cases.witness:Witness, {{cases.broken:Fails: {{phase: {phase}}}}}, cases.policies:MoveOn]"

    async def body():
        async with scene(json_answer({"error": {"message": "x"}}, 503), plugins=plugins) as s:
            answer = await s.ask()
            assert answer.status == 500
            assert s.witness.ends == [AttemptEnd.FAILED]

    run(body())


@pytest.mark.parametrize("phase", ["tap.body"])
def test_UPD_04_plugin_fails_on_a_whole_answer(phase):
    async def body():
        async with scene(
            json_answer(chat_answer("a")),
            plugins=f"[cases.witness:Witness, {{cases.broken:Fails: {{phase: {phase}}}}}]",
        ) as s:
            assert (await s.ask(CHAT)).status == 500
            assert (await s.outcome()).status == 500

    run(body())
