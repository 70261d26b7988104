"""Streams of a real engine as the unary answers that they would have been, and back."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from fakes import capture, chat_chunk, event
from tailrace.proxy.sse import Splitter
from tailrace.proxy.stored.fold import fold
from tailrace.proxy.stored.unfold import unfold
from tailrace.proxy.stored.whole import has_stream_form, is_whole


def texts(answer: dict[str, Any]) -> list[str]:
    return [choice.get("text") or choice["message"]["content"] for choice in answer["choices"]]


@pytest.mark.parametrize(
    ("route", "name"),
    [
        ("chat", "stream_usage.sse.txt"),
        ("chat", "stream.sse.txt"),
        ("chat", "stream_n2.sse.txt"),
        ("chat", "tool_named_stream.sse.txt"),
        ("chat", "tool_required_stream.sse.txt"),
        ("completions", "completion_stream.sse.txt"),
        ("messages", "messages_stream.sse.txt"),
    ],
)
def test_a_stream_is_the_same_after_it_was_folded_and_unfolded(route: str, name: str) -> None:
    answer = fold(route, capture(name))
    assert answer is not None
    assert has_stream_form(route, answer)
    for step in (1, 7, 48, 10_000):
        again = b"".join(unfold(route, answer, step, usage=True))
        assert fold(route, again) == answer


def test_a_fold_has_what_the_unary_answer_has() -> None:
    streamed, unary = fold("chat", capture("stream_usage.sse.txt")), orjson.loads(capture("unary.json"))
    assert streamed is not None
    assert texts(streamed) == texts(unary)
    assert streamed["object"] == unary["object"]
    for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
        assert streamed["usage"][name] == unary["usage"][name]
    assert streamed["choices"][0]["finish_reason"] == "length"
    assert not is_whole("chat", streamed)


def test_named_tools_are_as_in_the_unary_answer() -> None:
    streamed, unary = fold("chat", capture("tool_named_stream.sse.txt")), orjson.loads(capture("tool_named.json"))
    assert streamed is not None
    mine, its = (each["choices"][0]["message"]["tool_calls"] for each in (streamed, unary))
    assert [call["function"]["name"] for call in mine] == [call["function"]["name"] for call in its]


@pytest.mark.parametrize("name", ["stream_logprobs.sse.txt", "stream_token_ids.sse.txt"])
def test_what_has_no_place_in_the_form_is_not_folded(name: str) -> None:
    assert fold("chat", capture(name)) is None


ROLE, TEXT, STOP, DONE = chat_chunk("", role="assistant"), chat_chunk("a"), chat_chunk(finish="stop"), event("[DONE]")


@pytest.mark.parametrize(
    "events",
    [
        [ROLE, TEXT, STOP],
        [ROLE, TEXT, DONE],
        [ROLE, TEXT, chat_chunk("b", index=1), STOP, DONE],
        [ROLE, event({"error": {"message": "x"}}), STOP, DONE],
        [ROLE, chat_chunk(audio={"data": "AAAA"}), STOP, DONE],
        [ROLE, chat_chunk(tool_calls=[{"index": 0, "function": {"arguments": "{}"}}]), STOP, DONE],
        [ROLE, event(b"{broken"), STOP, DONE],
        [ROLE, event([1]), STOP, DONE],
        [DONE],
        [],
    ],
)
def test_what_is_not_whole_is_not_folded(events: list[bytes]) -> None:
    assert fold("chat", b"".join(events)) is None


def test_messages_without_their_end_are_not_folded() -> None:
    whole = capture("messages_stream.sse.txt")
    for end in range(0, len(whole) - 30, 97):
        assert fold("messages", whole[:end]) is None


@pytest.mark.parametrize(
    ("route", "answer", "whole"),
    [
        ("chat", {"choices": [{"finish_reason": "stop"}]}, True),
        ("chat", {"choices": [{"finish_reason": "tool_calls"}]}, True),
        ("chat", {"choices": [{"finish_reason": "length"}]}, False),
        ("chat", {"choices": [{"finish_reason": "abort"}]}, False),
        ("chat", {"choices": [{"finish_reason": None}]}, False),
        ("chat", {"choices": []}, False),
        ("chat", {"error": {"message": "x"}, "choices": [{"finish_reason": "stop"}]}, False),
        ("messages", {"stop_reason": "end_turn"}, True),
        ("messages", {"stop_reason": "max_tokens"}, False),
        ("messages", {"stop_reason": None}, False),
        ("responses", {"status": "completed"}, True),
        ("responses", {"status": "incomplete"}, False),
        ("responses", {"status": "completed", "incomplete_details": {"reason": "max_output_tokens"}}, False),
        ("embeddings", {"data": []}, True),
        ("embeddings", {"object": "error", "message": "x"}, False),
    ],
)
def test_what_is_whole(route: str, answer: dict[str, Any], whole: bool) -> None:
    assert is_whole(route, answer) is whole


def test_more_choices_than_came_were_asked_for() -> None:
    assert not is_whole("chat", {"choices": [{"finish_reason": "stop"}]}, 2)


@pytest.mark.parametrize(
    "message",
    [
        {"content": "x", "function_call": {"name": "f", "arguments": ""}},
        {"content": "x", "audio": {"data": "AAAA"}},
        {"content": "x", "annotations": [{"type": "url_citation"}]},
        {"content": [{"type": "text"}]},
        {"content": None, "tool_calls": [{"function": {"name": "f"}}]},
        None,
    ],
)
def test_what_a_stream_would_lack_has_no_stream_form(message: Any) -> None:
    assert not has_stream_form("chat", {"choices": [{"finish_reason": "stop", "message": message}]})


def test_each_event_is_whole_by_itself() -> None:
    answer = fold("chat", capture("stream_usage.sse.txt"))
    assert answer is not None
    events = unfold("chat", answer, 5, usage=True)
    assert [event_.raw for event_ in Splitter().feed(b"".join(events))] == events
    assert "usage" not in b"".join(unfold("chat", answer, 5, usage=False)).decode()
