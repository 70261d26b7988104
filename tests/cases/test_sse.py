"""SSE framing: bytes go on as they came, whatever their cut, and whoever looks sees exactly the events."""

from __future__ import annotations

import asyncio

import pytest
from fakes import answer, chat_answer, chat_chunk, chunked, json_answer, run, sse_answer, sse_head, stream_of
from tailrace.proxy.outcome import Ending

from cases.scene import CHAT, DONE, END, FINISH, ROLE, STREAM, USAGE, framed, scene
from cases.scripts import PLUGINS, each

CUT = [
    b"da",
    b'ta: {"id":"1","choices":[{"index":0,"delta":{"content":"he',
    b'llo"},"finish_reason":null}]}',
    b"\n",
    b"\n",
    *[bytes([byte]) for byte in FINISH + USAGE + DONE],
]


def events_seen(witness):
    """What the tap of the last answer saw, whichever kind it was."""
    return [found.raw for found in (getattr(witness, "edits", None) or witness.watches)[-1].events]


@pytest.mark.parametrize("plugin", PLUGINS)
def test_SSE_01_event_split(plugin):
    data = b"".join(CUT)

    async def body():
        async with scene(each(CUT), plugins=f"[cases.witness:{plugin}]") as s:
            answer = await s.ask()
            assert answer.complete
            assert answer.body == data
            assert (await s.outcome()).ending is Ending.COMPLETED
            if plugin != "Witness":
                assert events_seen(s.witness) == [part + b"\n\n" for part in data.split(b"\n\n")[:-1]]

    run(body())


def test_SSE_01_usage_is_found_in_any_cut():
    async def body():
        async with scene(each(CUT), plugins="[cases.witness:Tapped, cases.policies:NeedsUsage]") as s:
            answer = await s.ask({**STREAM, "stream_options": {"include_usage": True}})
            assert answer.body == b"".join(CUT)
            usage = (await s.outcome()).usage
            assert (usage.prompt, usage.completion) == (3, 2)

    run(body())


@pytest.mark.parametrize("plugin", PLUGINS)
def test_SSE_03_crlf_split_inside_the_terminator(plugin):
    """The event is delivered when it is whole, not with the next one; nothing is taken for a second event."""
    lines = chat_chunk("hi").replace(b"\n", b"\r\n")
    pieces = [ROLE.replace(b"\n", b"\r\n"), lines[:-3], b"\n\r", b"\n"]
    last = (FINISH + DONE).replace(b"\n", b"\r\n")
    go_on = asyncio.Event()

    async def script(conn, request):
        await conn.send(sse_head())
        for piece in pieces:
            await conn.send(chunked(piece))
            await asyncio.sleep(0.005)
        await go_on.wait()
        await conn.send(framed([last]) + END)

    async def body():
        async with scene(script, plugins=f"[cases.witness:{plugin}]") as s:
            client = await s.begin()
            await client.read_until(lines[:-3].rstrip())
            go_on.set()
            rest = await client.read_until(END)
            assert b"[DONE]" in rest
            assert (await s.outcome()).ending is Ending.COMPLETED
            if plugin != "Witness":
                seen = events_seen(s.witness)
                assert b"".join(seen) == b"".join(pieces) + last
                assert len([raw for raw in seen if b"data" in raw]) == 4

    run(body())


@pytest.mark.parametrize("plugin", PLUGINS)
def test_SSE_03_crlf_stream_may_end_split_in_the_terminator(plugin):
    """Its last event is whole although its line feed came alone."""
    text = (chat_chunk("hi") + FINISH).replace(b"\n", b"\r\n")

    async def body():
        async with scene(each([text[:-1], text[-1:]], 0.03), plugins=f"[cases.witness:{plugin}]") as s:
            answer = await s.ask()
            assert (answer.body, answer.complete) == (text, True)

    run(body())


@pytest.mark.parametrize("plugin", PLUGINS)
def test_SSE_04_bare_cr_and_mixed_line_ends(plugin):
    """Each event reaches the client before the next one is sent."""
    styles = [b"\r\r", b"\n\r\n", b"\r\n\n"]
    sent = [chat_chunk(f"t{index}").rstrip() + style for index, style in enumerate(styles)]
    steps = asyncio.Queue()

    async def script(conn, request):
        await conn.send(sse_head())
        for piece in sent:
            await conn.send(chunked(piece))
            await steps.get()
        await conn.send(framed([FINISH, DONE]) + END)

    async def body():
        async with scene(script, plugins=f"[cases.witness:{plugin}]") as s:
            client = await s.begin()
            await client.read_head()
            for piece in sent:
                assert (await client.read_chunk())[0] == piece
                steps.put_nowait(None)
            await client.read_until(END)
            if plugin != "Witness":
                assert events_seen(s.witness) == [*sent, FINISH, DONE]

    run(body())


SHAPES = {
    "no space": [b'data:{"id":"1","choices":[{"index":0,"delta":{"content":"a"}}]}\n\n', FINISH, b"data:[DONE]\n\n"],
    "several lines": [
        b'event: x\nid: 7\ndata: {"choices":\ndata: [{"index":0,\ndata: "delta":{"content":"a"}}]}\nretry: 5\n\n',
        b'data: {"choices": [],\nid: 8\ndata: "usage": {"prompt_tokens": 3,\ndata: "completion_tokens": 2}}\n\n',
        FINISH,
        DONE,
    ],
    "spread finish": [
        chat_chunk("a"),
        b'data: {"choices": [{"index": 0, "delta": {},\ndata: "finish_reason": "stop"}]}\n\n',
        USAGE,
    ],
}


@pytest.mark.parametrize("plugin", PLUGINS)
@pytest.mark.parametrize("name", SHAPES)
def test_SSE_05_spellings_of_fields(name, plugin):
    async def body():
        async with scene(each(SHAPES[name]), plugins=f"[cases.policies:NeedsUsage, cases.witness:{plugin}]") as s:
            answer = await s.ask({**STREAM, "stream_options": {"include_usage": True}})
            assert (answer.body, answer.complete) == (b"".join(SHAPES[name]), True)
            outcome = await s.outcome()
            assert outcome.ending is Ending.COMPLETED
            if name == "several lines":
                assert outcome.usage.prompt == 3

    run(body())


@pytest.mark.parametrize("plugin", PLUGINS)
def test_SSE_09_empty_data_and_no_data(plugin):
    odd = [b"data: \n\n", b"data:\n\n", b"data\n\n", b"retry: 3000\n\n", b"event: ping\n\n", b"\n\n", b": \n\n"]
    pieces = [*odd, ROLE, *odd, chat_chunk("a"), *odd, FINISH, *odd, DONE]

    async def body():
        async with scene(each(pieces), plugins=f"[cases.witness:{plugin}]") as s:
            answer = await s.ask()
            assert (answer.body, answer.complete) == (b"".join(pieces), True)

    run(body())


@pytest.mark.parametrize("plugin", PLUGINS)
@pytest.mark.parametrize("many", ["one write", "two hundred writes"])
def test_SSE_11_many_events_in_one_segment(many, plugin, caplog):
    events = [ROLE, *[chat_chunk("x" * 100)] * 200, FINISH, USAGE, DONE]
    data = b"".join(events)
    sent = [data] if many == "one write" else [data[at : at + 300] for at in range(0, len(data), 300)]

    async def body():
        async with scene(each(sent, 0), plugins=f"[cases.policies:NeedsUsage, cases.witness:{plugin}]") as s:
            answer = await s.ask({**STREAM, "stream_options": {"include_usage": True}})
            assert (answer.body, answer.complete) == (data, True)
            assert (await s.outcome()).usage.completion == 2
            if plugin != "Witness":
                assert events_seen(s.witness) == events

    run(body())
    assert not caplog.records


@pytest.mark.parametrize("plugin", PLUGINS)
def test_SSE_15_bom(plugin):
    pieces = [b"\xef\xbb\xbf" + chat_chunk("a"), FINISH, DONE]

    async def body():
        async with scene(each(pieces), plugins=f"[cases.witness:{plugin}]") as s:
            answer = await s.ask()
            assert (answer.body, answer.complete) == (b"".join(pieces), True)

    run(body())


@pytest.mark.parametrize("hinted", [b"", b"x-accel-buffering: yes\r\ncache-control: max-age=9\r\n"])
def test_SSE_16_nothing_on_the_way_buffers(hinted):
    async def body():
        async with scene(sse_answer(stream_of(["a"]), hinted), json_answer(chat_answer("a"))) as s:
            answer = await s.ask()
            assert answer.head.all("x-accel-buffering") == ["no"]
            assert answer.head.all("cache-control") == ["no-cache, no-transform"]
            assert answer.header("content-length") is None
            answer = await s.ask(CHAT)
            assert answer.header("x-accel-buffering") is None
            assert answer.header("cache-control") is None

    run(body())


def test_SSE_18_interleaved_choices_and_tool_calls():
    def tool(text, index):
        return chat_chunk(index=index, tool_calls=[{"index": 0, "function": {"arguments": text}}])

    steps = asyncio.Queue()
    pieces = [tool("abc", 0), tool("def", 1), chat_chunk("x", index=1), tool("ghi", 0), FINISH, DONE]

    async def script(conn, request):
        await conn.send(sse_head())
        for piece in pieces:
            await conn.send(chunked(piece))
            await steps.get()
        await conn.send(END)

    async def body():
        async with scene(script) as s:
            client = await s.begin()
            await client.read_head()
            for piece in pieces:
                assert (await client.read_chunk())[0] == piece
                steps.put_nowait(None)

    run(body())


@pytest.mark.parametrize("kind", ["Text/Event-Stream", "text/event-stream;charset=UTF-8", "TEXT/EVENT-STREAM ; x=y"])
def test_SSE_19_content_type_spellings(kind):
    data = b"".join(stream_of(["a"]))

    async def body():
        async with scene(answer(200, data, kind), json_answer(chat_answer("a"))) as s:
            streamed = await s.ask()
            assert (streamed.body, streamed.complete) == (data, True)
            assert streamed.header("content-length") is None
            whole = await s.ask()
            assert whole.header("content-type") == "application/json"
            assert whole.json() == chat_answer("a")

    run(body())
