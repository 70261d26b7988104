"""Which questions get the answer of another one, and in which form; and from which nothing is kept."""

from __future__ import annotations

import orjson
import pytest
from fakes import chat_chunk, event, json_answer, run, sse_answer, stream_of
from remembering import LIVE, MESSAGES, SHADOW, answering, asking

FIRST = "How do I reset my password?"
AGAIN = "Please tell me how I can reset my password"
TRAP = "How do I reset my username?"


def text_of(answer):
    return answer.json()["choices"][0]["message"]["content"]


def deltas_of(answer):
    bodies = [event.json() for event in answer.events if event.data != b"[DONE]"]
    return "".join(choice["delta"].get("content") or "" for body in bodies for choice in body["choices"])


def test_another_wording_gets_the_answer_and_another_question_does_not():
    async def body():
        async with asking() as asks:
            first, again, trap = [await asks.ask(text) for text in (FIRST, AGAIN, TRAP)]
            assert [text_of(answer) for answer in (first, again, trap)] == ["answer 1", "answer 1", "answer 2"]
            assert first.header("x-tailrace-semantic-cache") == "miss; domain=faq"
            assert again.header("x-tailrace-semantic-cache").startswith("hit; domain=faq; similarity=0.")
            assert again.header("age") == "0"
            assert first.header("age") is None
            assert asks.counted[("asked_total", "faq", "hit")] == 1
            assert asks.counted[("asked_total", "faq", "miss")] == 2
            assert asks.counted[("entries",)] == 2
            call, outcome = asks.bench.calls[1]
            assert (call.source, outcome.usage.completion) == ("semantic_cache", 3)

    run(body())


@pytest.mark.parametrize("kept_as_stream", [True, False], ids=["stream", "unary"])
def test_a_kept_answer_is_given_in_the_form_that_is_asked_for(kept_as_stream):
    async def body():
        async with asking() as asks:
            await asks.ask(FIRST, stream=kept_as_stream)
            whole, stream = await asks.ask(AGAIN), await asks.ask(AGAIN, stream=True)
            counted = await asks.ask(AGAIN, stream=True, stream_options={"include_usage": True})
            assert asks.asked == 1
            said = "answer1" if kept_as_stream else "answer 1"
            assert text_of(whole) == deltas_of(stream) == deltas_of(counted) == said
            assert stream.events[-1].data == counted.events[-1].data == b"[DONE]"
            assert whole.json()["usage"]["completion_tokens"] == 3
            assert not any(b'"usage":{' in event.data for event in stream.events)
            assert counted.events[-2].json()["usage"]["completion_tokens"] == 3

    run(body())


def test_messages_are_remembered_apart_from_chat():
    async def body():
        async with asking() as asks:
            await asks.ask(FIRST)
            assert await asks.told(FIRST, path=MESSAGES, max_tokens=10) == "miss"
            again = await asks.ask(AGAIN, path=MESSAGES, max_tokens=10)
            assert again.json()["content"][0]["text"] == "answer 2"
            assert asks.asked == 2

    run(body())


DIFFERENT = {
    "system": {"system": "You are a lawyer."},
    "temperature": {"temperature": 0.7},
    "max_tokens": {"max_tokens": 5},
    "response_format": {"response_format": {"type": "json_object"}},
}


@pytest.mark.parametrize("more", DIFFERENT.values(), ids=DIFFERENT)
def test_all_but_the_last_thing_said_has_to_be_the_same_to_the_letter(more):
    async def body():
        async with asking() as asks:
            await asks.ask(FIRST)
            assert await asks.told(AGAIN, **more) == "miss"
            assert await asks.told(FIRST, **more) == "hit"
            assert await asks.told(FIRST, stream=False, user="somebody", **more) == "hit"

    run(body())


def test_what_was_said_before_has_to_be_the_same():
    async def body():
        async with asking() as asks:
            path = "/v1/chat/completions"

            async def after(before):
                said = [{"role": "user", "content": before}, {"role": "assistant", "content": "Well."}]
                messages = [*said, {"role": "user", "content": "And how much does it cost?"}]
                answer = await asks.bench.post(path, {"model": "m", "messages": messages})
                return answer.header("x-tailrace-semantic-cache").partition(";")[0]

            assert await after("Tell me of the premium plan.") == "miss"
            assert await after("Tell me of the basic plan.") == "miss"

    run(body())


LEFT_ALONE = {
    "private": ("private", {"headers": {"x-tailrace-private": "1"}}),
    "no-store": ("private", {"headers": {"cache-control": "no-store"}}),
    "off": ("private", {"headers": {"x-tailrace-cache": "off"}}),
    "store false": ("private", {"store": False}),
    "store": ("effects", {"store": True}),
    "tools": ("tools", {"tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}]}),
    "n": ("form", {"n": 2}),
    "logprobs": ("form", {"logprobs": True}),
    "personal system": ("personal", {"system": "The caller is jane.roe@example.com."}),
}


@pytest.mark.parametrize(("why", "more"), LEFT_ALONE.values(), ids=LEFT_ALONE)
def test_what_is_left_alone_is_neither_kept_nor_answered(why, more):
    async def body():
        async with asking() as asks:
            assert await asks.told(FIRST, **more) == "bypass"
            assert ("entries",) not in asks.counted
            await asks.ask(FIRST)
            assert await asks.told(FIRST, **more) == "bypass"
            assert asks.asked == 3
            assert asks.counted[("bypassed_total", "faq", why)] == 2

    run(body())


@pytest.mark.parametrize(
    ("why", "text"),
    [
        ("personal", "Why was jane.roe@example.com refused?"),
        ("personal", "Is the card 4111 1111 1111 1111 blocked?"),
        ("personal", "Call me at +49 30 1234 5678, please."),
        ("long", "word " * 200),
        (
            "form",
            [{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": "http://x/y"}}],
        ),
        ("form", "?" * 0),
    ],
)
def test_questions_that_are_left_alone(why, text):
    async def body():
        async with asking() as asks:
            assert await asks.told(text) == "bypass"
            assert await asks.told(text) == "bypass"
            assert asks.counted[("bypassed_total", "faq", why)] == 2
            assert ("entries",) not in asks.counted

    run(body())


def test_an_answer_with_something_personal_is_not_kept():
    async def body():
        async with asking(script=answering({1: "Ask jane.roe@example.com.", 2: "Ask support."})) as asks:
            assert [await asks.told(FIRST) for _ in range(3)] == ["miss", "miss", "hit"]
            assert asks.counted[("unfit_total",)] == 1

    run(body())


UNFINISHED = {
    "length": sse_answer([chat_chunk("half"), chat_chunk(finish="length"), event("[DONE]")]),
    "no reason": sse_answer([chat_chunk("half"), event("[DONE]")]),
    "error": sse_answer([chat_chunk("half"), event({"error": {"message": "x", "code": 500}}), event("[DONE]")]),
    "refused": json_answer({"error": {"message": "no"}}, 400),
}


@pytest.mark.parametrize("bad", UNFINISHED.values(), ids=UNFINISHED)
def test_an_answer_that_is_not_whole_is_not_kept(bad):
    async def body():
        async with asking(script=scripted(bad)) as asks:
            await asks.ask(FIRST, stream=True)
            assert await asks.told(AGAIN, stream=True) == "miss"
            assert ("entries",) not in asks.counted

    def scripted(data):
        async def script(conn, request):
            script.seen.append(request)
            await conn.send(data)

        script.seen = []
        return script

    run(body())


def test_an_answer_that_is_too_large_is_not_kept():
    async def body():
        async with asking({**LIVE, "largest_answer": 200}) as asks:
            assert [await asks.told(FIRST) for _ in range(2)] == ["miss", "miss"]

    run(body())


def test_a_domain_is_by_model_or_by_the_name_that_a_call_gives():
    async def body():
        domains = [{"name": "faq", "model": ["m"], "shadow": False}, {"name": "docs", "shadow": False}]
        async with asking({"domains": domains}) as asks:
            assert await asks.told(FIRST) == "miss"
            assert await asks.told(AGAIN, headers={"x-tailrace-domain": "docs"}) == "miss"
            assert await asks.told(AGAIN, headers={"x-tailrace-domain": "Docs"}) == "hit"
            assert await asks.told(AGAIN, headers={"x-tailrace-domain": "unknown"}) == ""
            assert await asks.told(AGAIN) == "hit"

    run(body())


def test_a_call_without_a_domain_is_left_alone():
    async def body():
        async with asking({"domains": [{"name": "docs", "shadow": False}]}) as asks:
            assert [await asks.told(FIRST) for _ in range(2)] == ["", ""]
            assert asks.asked == 2

    run(body())


def test_in_shadow_it_only_tells_what_it_would_have_answered(tmp_path):
    async def body():
        report = tmp_path / "report.jsonl"
        async with asking({**SHADOW, "report": str(report)}) as asks:
            first, again = await asks.ask(FIRST), await asks.ask(AGAIN)
            assert (text_of(first), text_of(again)) == ("answer 1", "answer 2")
            assert again.header("x-tailrace-semantic-cache").startswith("shadow; domain=faq; similarity=0.")
            assert again.header("age") is None
            assert asks.counted[("asked_total", "faq", "shadow")] == 1
            assert asks.counted[("entries",)] == 1
        [line] = [orjson.loads(line) for line in report.read_bytes().splitlines()]
        assert (line["question"], line["like"], line["shadow"]) == (AGAIN, FIRST, True)
        assert line["remembered"] == "answer 1"
        assert line["answered"] == "answer 2"
        assert report.stat().st_mode & 0o777 == 0o600

    run(body())


def test_what_a_client_wishes_of_kept_answers_counts():
    async def body():
        async with asking() as asks:
            only = await asks.ask(FIRST, headers={"cache-control": "only-if-cached"})
            assert (only.status, asks.asked) == (504, 0)
            await asks.ask(FIRST)
            fresh = await asks.ask(AGAIN, headers={"cache-control": "no-cache"})
            assert text_of(fresh) == "answer 2"
            assert text_of(await asks.ask(FIRST, headers={"cache-control": "only-if-cached"})) == "answer 1"
            assert text_of(await asks.ask(AGAIN)) == "answer 2"

    run(body())


def test_a_long_text_is_understood_in_a_thread():
    async def body():
        async with asking() as asks:
            search = asks.plugin._search
            search.slow = lambda question: True
            assert [await asks.told(text) for text in (FIRST, AGAIN)] == ["miss", "hit"]

    run(body())


def test_what_is_known_outlives_a_reload_and_the_bound_counts():
    async def body():
        async with asking({**LIVE, "memory": 6000}) as asks:
            for number in range(20):
                await asks.ask(f"What is {number} times {number}?")
                assert asks.plugin._memory.size <= 6000
            assert 0 < asks.counted[("entries",)] < 20
            assert asks.counted[("evicted_total",)] > 0

    run(body())


def test_streams_of_every_cut_are_kept():
    async def body():
        async with asking(script=None, feed="bytes") as asks:
            await asks.ask(FIRST, stream=True)
            assert await asks.told(AGAIN) == "hit"

    run(body())


assert stream_of
