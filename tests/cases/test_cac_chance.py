"""Which answers are never kept, and which only where somebody asks for that: chance, effects, media elsewhere."""

from __future__ import annotations

import pytest
from fakes import chat_answer, chat_chunk, json_answer, run, sse_answer

from cases.scene import CHAT, DONE, FINISH, ROLE, STREAM, USAGE, scene

CACHE = "[cases.tenants:Tenants, cases.witness:Witness, cache]"
COLD = {**CHAT, "temperature": 0}
COLD_STREAM = {**STREAM, "temperature": 0}
WHOLE = sse_answer([ROLE, chat_chunk("whole"), FINISH, USAGE, DONE])
FIRST = json_answer(chat_answer("first"))


def told(answer):
    return answer.header("x-tailrace-cache")


def text_of(answer):
    return answer.json()["choices"][0]["message"]["content"]


TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}


def picture(url):
    return [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]


def test_CAC_06_what_chance_has_a_part_in_is_kept_only_where_that_is_asked():
    async def body():
        async with scene(FIRST, plugins=CACHE) as s:
            for request in (CHAT, {**CHAT, "temperature": 0.7}, {**CHAT, "temperature": 1, "seed": 3}):
                assert [told(await s.ask(request)) for _ in range(2)] == ["bypass"] * 2
            assert [told(await s.ask(COLD)) for _ in range(2)] == ["miss", "hit"]
            wanted = {"x-tailrace-cache": "on"}
            assert [told(await s.ask({**CHAT, "temperature": 0.7}, headers=wanted)) for _ in range(2)] == [
                "miss",
                "hit",
            ]
            off = {"x-tailrace-cache": "off"}
            assert [told(await s.ask(COLD, headers=off)) for _ in range(2)] == ["bypass"] * 2

    run(body())


@pytest.mark.parametrize(
    ("path", "request_"),
    [
        ("/v1/chat/completions", {**COLD, "store": True}),
        ("/v1/chat/completions", {**COLD, "tools": [{"type": "web_search"}]}),
        ("/v1/chat/completions", {**COLD, "messages": picture("https://example.com/today.png")}),
        ("/v1/chat/completions", {**COLD, "logprobs": True}),
        ("/v1/chat/completions", {**COLD, "kv_transfer_params": {"do_remote_decode": True}}),
        ("/v1/responses", {"model": "m", "input": "hi", "temperature": 0}),
        ("/v1/responses", {"model": "m", "input": "hi", "temperature": 0, "store": False, "previous_response_id": "r"}),
    ],
)
def test_CAC_06_what_has_effects_or_lies_elsewhere_is_never_kept(path, request_):
    async def body():
        answer = {**chat_answer("x"), "output": [], "status": "completed"}
        async with scene(json_answer(answer), plugins="[cases.witness:Witness, cache: {always: true}]") as s:
            for _ in range(2):
                answered = await s.ask(request_, path=path, headers={"x-tailrace-cache": "on"})
                assert told(answered) in ("bypass", None)
            assert len(s.upstream.requests) == 2 or request_.get("previous_response_id")

    run(body())


def test_CAC_06_tools_that_the_client_runs_and_pictures_that_came_along_may_be_kept():
    async def body():
        async with scene(FIRST, plugins=CACHE) as s:
            for request in ({**COLD, "tools": [TOOL]}, {**COLD, "messages": picture("data:image/png;base64,AAAA")}):
                assert [told(await s.ask(request)) for _ in range(2)] == ["miss", "hit"]

    run(body())
