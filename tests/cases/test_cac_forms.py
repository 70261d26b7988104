"""CAC-05: an answer that was kept as one thing is given as what is asked for, with all that belongs to it."""

from __future__ import annotations

import pytest
from fakes import chat_chunk, event, json_answer, run, sse_answer

from cases.scene import CHAT, DONE, ROLE, STREAM, USAGE, scene

CACHE = "[cases.witness:Witness, cache]"
COLD = {**CHAT, "temperature": 0}
COLD_STREAM = {**STREAM, "temperature": 0}
METERED = {**COLD_STREAM, "stream_options": {"include_usage": True}}
CALL = {"id": "t1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Köln"}'}}
MESSAGE = {
    "role": "assistant",
    "content": "Grüße, it is sunny. " * 9,
    "reasoning": "Let me look. " * 9,
    "tool_calls": [CALL],
}
UNARY = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [{"index": 0, "message": MESSAGE, "logprobs": None, "finish_reason": "tool_calls", "stop_reason": None}],
    "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
}


def chunks_of(message, usage=()):
    opened = {**CALL, "index": 0, "function": {"name": "weather"}}
    rest = [
        {"index": 0, "function": {"arguments": CALL["function"]["arguments"][at : at + 5]}} for at in range(0, 20, 5)
    ]
    return [
        ROLE,
        chat_chunk(reasoning=message["reasoning"][:10]),
        chat_chunk(reasoning=message["reasoning"][10:]),
        *[chat_chunk(message["content"][at : at + 7]) for at in range(0, len(message["content"]), 7)],
        *[chat_chunk(tool_calls=[piece]) for piece in (opened, *rest)],
        chat_chunk(finish="tool_calls"),
        *usage,
        DONE,
    ]


KEPT = {"unary": (COLD, json_answer(UNARY)), "stream": (COLD_STREAM, sse_answer(chunks_of(MESSAGE, [USAGE])))}


def put_together(answer):
    """What a client makes of a stream: texts, calls of tools, reason, usage."""
    texts = {"content": "", "reasoning": ""}
    calls, reason, usage = {}, None, None
    events = answer.events
    assert events[-1].data == b"[DONE]"
    for each in events[:-1]:
        body = each.json()
        assert body["object"] == "chat.completion.chunk"
        usage = body.get("usage") or usage
        for choice in body["choices"]:
            assert reason is None
            for name in texts:
                texts[name] += choice["delta"].get(name) or ""
            for piece in choice["delta"].get("tool_calls") or ():
                call = calls.setdefault(piece["index"], {"arguments": ""})
                call |= {key: piece[key] for key in ("id", "type") if key in piece}
                call["name"] = piece["function"].get("name", call.get("name"))
                call["arguments"] += piece["function"].get("arguments", "")
            reason = choice["finish_reason"] or reason
    return texts, calls, reason, usage


EXPECTED = (
    {"content": MESSAGE["content"], "reasoning": MESSAGE["reasoning"]},
    {0: {"id": "t1", "type": "function", **CALL["function"]}},
    "tool_calls",
)


@pytest.mark.parametrize("kept", KEPT)
@pytest.mark.parametrize("metered", [False, True])
def test_CAC_05_as_a_stream(kept, metered):
    async def body():
        request, given = KEPT[kept]
        async with scene(given, plugins=CACHE) as s:
            await s.ask(request)
            answer = await s.ask(METERED if metered else COLD_STREAM)
            assert answer.header("x-tailrace-cache") == "hit"
            assert answer.header("content-type").startswith("text/event-stream")
            *rest, usage = put_together(answer)
            assert tuple(rest) == EXPECTED
            assert (usage is not None) is metered
            if metered:
                assert (usage["prompt_tokens"], usage["completion_tokens"]) == (3, 2)
            assert len(answer.events) > 10, "one lump"
            assert len(s.upstream.requests) == 1

    run(body())


@pytest.mark.parametrize("kept", KEPT)
def test_CAC_05_as_one_object(kept):
    async def body():
        request, given = KEPT[kept]
        async with scene(given, plugins=CACHE) as s:
            await s.ask(request)
            answer = await s.ask(COLD)
            assert answer.header("x-tailrace-cache") == "hit"
            body = answer.json()
            message = body["choices"][0]["message"]
            assert {name: message[name] for name in MESSAGE} == MESSAGE
            assert body["object"] == "chat.completion"
            assert body["choices"][0]["finish_reason"] == "tool_calls"
            assert body["usage"]["prompt_tokens"] == 3

    run(body())


MESSAGES = {"model": "m", "max_tokens": 50, "temperature": 0, "messages": [{"role": "user", "content": "hi"}]}
NAMED = [
    {"type": "message_start", "message": {"id": "msg", "type": "message", "role": "assistant", "content": [],
     "model": "m", "stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": 3, "output_tokens": 0}}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": "", "signature": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "hm"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "Good "}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "day"}},
    {"type": "content_block_stop", "index": 1},
    {"type": "content_block_start", "index": 2,
     "content_block": {"type": "tool_use", "id": "t", "name": "weather", "input": {}}},
    {"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": '{"city":'}},
    {"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": '"Rome"}'}},
    {"type": "content_block_stop", "index": 2},
    {"type": "message_delta", "delta": {"stop_reason": "tool_use", "stop_sequence": None},
     "usage": {"input_tokens": 3, "output_tokens": 9}},
    {"type": "message_stop"},
]  # fmt: skip


def test_CAC_05_messages_both_ways():
    async def body():
        stream = sse_answer([event(each, each["type"]) for each in NAMED])
        async with scene(stream, plugins=CACHE) as s:
            path = "/v1/messages"
            first = await s.ask({**MESSAGES, "stream": True}, path=path)
            again = await s.ask({**MESSAGES, "stream": True}, path=path)
            whole = await s.ask(MESSAGES, path=path)
            assert [each.header("x-tailrace-cache") for each in (first, again, whole)] == ["miss", "hit", "hit"]
            assert [each.name for each in again.events][:2] == [b"message_start", b"content_block_start"]
            assert again.events[-1].name == b"message_stop"
            assert again.events[-2].json()["usage"]["output_tokens"] == 9
            content = whole.json()["content"]
            assert [block["type"] for block in content] == ["thinking", "text", "tool_use"]
            assert (content[0]["thinking"], content[1]["text"]) == ("hm", "Good day")
            assert content[2]["input"] == {"city": "Rome"}
            assert whole.json()["stop_reason"] == "tool_use"
            assert len(s.upstream.requests) == 1

    run(body())


def test_CAC_05_answers_of_other_apis_keep_their_own_form():
    async def body():
        embedding = {"object": "list", "data": [{"index": 0, "embedding": [0.5]}], "usage": {"prompt_tokens": 2}}
        async with scene(json_answer(embedding), plugins=CACHE) as s:
            asked = {"model": "m", "input": "hi"}
            first, again = [await s.ask(asked, path="/v1/embeddings") for _ in range(2)]
            assert again.header("x-tailrace-cache") == "hit"
            assert again.body == first.body
            other = await s.ask({**asked, "encoding_format": "base64"}, path="/v1/embeddings")
            assert other.header("x-tailrace-cache") == "miss"

    run(body())


def test_CAC_05_whoever_follows_gets_the_form_that_was_asked_for():
    import asyncio

    async def body():
        gate = asyncio.Event()

        async def late(conn, request):
            await gate.wait()
            await conn.send(KEPT["stream"][1])

        async with scene(late, plugins=CACHE) as s:
            asking = [asyncio.ensure_future(s.ask(COLD_STREAM))]
            await s.upstream.asked()
            asking += [asyncio.ensure_future(s.ask(each)) for each in (COLD, METERED, COLD_STREAM)]
            while s.process.service.active < 4:
                await asyncio.sleep(0.002)
            gate.set()
            led, whole, metered, same = [await each for each in asking]
            assert [each.header("x-tailrace-cache") for each in (led, whole, metered, same)] == ["miss"] + [
                "follow"
            ] * 3
            assert whole.json()["choices"][0]["message"]["reasoning"] == MESSAGE["reasoning"]
            assert put_together(metered)[3]["prompt_tokens"] == 3
            assert put_together(same)[3] is None
            assert same.body == led.body

    run(body())


def test_CAC_05_whoever_follows_is_told_so_though_a_heartbeat_comes_first():
    import asyncio

    async def body():
        gate = asyncio.Event()

        async def late(conn, request):
            await gate.wait()
            await conn.send(KEPT["stream"][1])

        async with scene(late, plugins=CACHE, more="heartbeat: 0.05s\n") as s:
            clients = [await s.begin(COLD_STREAM)]
            await s.upstream.asked()
            clients += [await s.begin(each) for each in (COLD_STREAM, METERED)]
            heads = [await client.read_until(b": heartbeat") for client in clients]
            gate.set()
            for head, how in zip(heads, (b"miss", b"follow", b"follow"), strict=True):
                assert b"x-tailrace-cache: " + how in head
            for client in clients:
                assert b"[DONE]" in await client.read_until(b"[DONE]")

    run(body())


LONG = '{"account":123456789012345678901234567890}'


@pytest.mark.parametrize("stream", [True, False])
def test_CAC_05_a_number_that_would_come_out_as_another_one_is_not_kept(stream):
    pieces = [*NAMED[:-4], {**NAMED[-4], "delta": {"type": "input_json_delta", "partial_json": LONG}}, *NAMED[-3:]]
    del pieces[-5]
    call = {"type": "tool_use", "id": "t", "name": "weather", "input": {"account": 7}}
    whole = {**NAMED[0]["message"], "content": [call], "stop_reason": "tool_use"}
    unary = json_answer(whole).replace(b'{"account":7}', LONG.encode())
    unary = unary.replace(b"content-length: ", b"x-length: ").replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n", 1)

    async def worker(conn, request):
        streams = request.json().get("stream")
        await conn.send(sse_answer([event(each, each["type"]) for each in pieces]) if streams else unary)
        if not streams:
            conn.close()

    async def body():
        async with scene(worker, plugins=CACHE) as s:
            path = "/v1/messages"
            await s.ask({**MESSAGES, "stream": stream}, path=path)
            other = await s.ask({**MESSAGES, "stream": not stream}, path=path)
            assert other.header("x-tailrace-cache") == "miss"
            assert b"123456789012345678901234567890" in other.body

    run(body())
