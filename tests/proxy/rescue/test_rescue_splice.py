"""Events of a continuation in the form of the stream that they go on with."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from tailrace.proxy.rescue.splice import DONE, Splice, Unlike
from tailrace.proxy.rescue.stops import Stops
from tailrace.proxy.sse import Event

CHAT: dict[str, Any] = {
    "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 7, "model": "m",
    "choices": [{"index": 0, "delta": {"content": "a"}, "logprobs": None, "finish_reason": None, "token_ids": [5]}],
}  # fmt: skip
TEXT: dict[str, Any] = {
    "id": "cmpl-1", "object": "text_completion", "created": 7, "model": "m",
    "choices": [{"index": 0, "text": "a", "logprobs": None, "finish_reason": None, "stop_reason": None,
                 "token_ids": [5], "prompt_token_ids": [1, 2, 3]}],
}  # fmt: skip


def said(text: str, ids: list[int], reason: str | None = None, stop: Any = None, **more: Any) -> Event:
    """What the other engine says."""
    choice = {"index": 0, "text": text, "finish_reason": reason, "stop_reason": stop, "token_ids": ids}
    whole = {"id": "cmpl-other", "object": "text_completion", "created": 99, "model": "other", "choices": [choice]}
    return Event(b"data: " + orjson.dumps({**whole, **more}) + b"\n\n")


def usage_of(prompt: int, completion: int, **more: Any) -> dict[str, Any]:
    return {"prompt_tokens": prompt, "total_tokens": prompt + completion, "completion_tokens": completion, **more}


def splice(sample: Any = CHAT, *, final: bool = False, running: bool = False, **rest: Any) -> Splice:
    return Splice(sample, 10, 4, final=final, running=running, **rest)


def read(raw: bytes) -> list[Any]:
    pieces = raw.split(b"\n\n")
    assert pieces.pop() == b""
    return [piece if piece == b"data: [DONE]" else orjson.loads(piece.removeprefix(b"data: ")) for piece in pieces]


def test_a_chat_goes_on_as_the_same_chat() -> None:
    (event,) = read(splice().feed(said("b", [6])))
    assert event == {**CHAT, "choices": [{**CHAT["choices"][0], "delta": {"content": "b"}, "token_ids": [6]}]}
    assert list(event) == list(CHAT)


def test_a_text_goes_on_as_the_same_text_and_says_no_prompt_again() -> None:
    (event,) = read(splice(TEXT).feed(said("b", [6])))
    assert event == {
        **TEXT, "choices": [{**TEXT["choices"][0], "text": "b", "token_ids": [6], "prompt_token_ids": None}]
    }  # fmt: skip
    assert TEXT["choices"][0]["prompt_token_ids"] == [1, 2, 3]


def test_the_role_is_not_said_again() -> None:
    sample = {**CHAT, "choices": [{**CHAT["choices"][0], "delta": {"role": "assistant", "content": "a"}}]}
    (event,) = read(splice(sample).feed(said("b", [6])))
    assert event["choices"][0]["delta"] == {"content": "b"}


@pytest.mark.parametrize("sample", [CHAT, TEXT])
@pytest.mark.parametrize(("reason", "stop"), [("length", None), ("stop", 42), ("stop", None)])
def test_the_end_of_a_choice(sample: Any, reason: str, stop: Any) -> None:
    (event,) = read(splice(sample).feed(said("b", [6], reason, stop)))
    assert event["choices"][0]["finish_reason"] == reason
    assert event["choices"][0]["stop_reason"] == stop


def test_usage_at_the_end_is_that_of_the_whole() -> None:
    here = splice(final=True)
    here.feed(said("b", [6]))
    here.feed(said("c", [7, 8], "length"))
    other = {"choices": [], "usage": usage_of(14, 3, prompt_tokens_details={"cached_tokens": 12})}
    (event,) = read(here.feed(Event(b"data: " + orjson.dumps(other) + b"\n\n")))
    assert event["choices"] == []
    assert event["usage"] == usage_of(10, 7, prompt_tokens_details={"cached_tokens": 10})
    assert event["id"] == "chatcmpl-1"
    assert here.feed(Event(b"data: [DONE]\n\n")) == DONE


def test_running_usage_has_the_shape_that_it_had() -> None:
    sample = {**CHAT, "usage": usage_of(10, 1, completion_tokens_details=None)}
    here = splice(sample, final=True, running=True)
    (event,) = read(here.feed(said("b", [6, 7], usage=usage_of(14, 2))))
    assert event["usage"] == usage_of(10, 6, completion_tokens_details=None)


def test_what_else_the_other_engine_says_of_itself() -> None:
    (event,) = read(splice().feed(said("b", [6], "length", system_fingerprint="fp", metrics={"a": 1})))
    assert (event["system_fingerprint"], event["metrics"]) == ("fp", {"a": 1})


@pytest.mark.parametrize("raw", [b": ping\n\n", b"data: {nonsense\n\n", b'data: {"choices":null}\n\n', b"data: 5\n\n"])
def test_what_is_no_event_of_an_answer_stays_as_it_is(raw: bytes) -> None:
    assert splice().feed(Event(raw)) == raw


# Ids that the client has already.


def test_known_ids_are_not_shown_twice() -> None:
    here = splice(final=True, known=[6, 7])
    assert here.feed(said("", [6])) == b""
    (event,) = read(here.feed(said("水", [7, 8])))
    assert event["choices"][0]["delta"] == {"content": "水"}
    assert event["choices"][0]["token_ids"] == [8]
    assert read(here.close())[0]["usage"] == usage_of(10, 7)


def test_text_of_known_ids_is_not_lost() -> None:
    here = splice(known=[6])
    (event,) = read(here.feed(said("b", [6])))
    assert (event["choices"][0]["delta"], event["choices"][0]["token_ids"]) == ({"content": "b"}, [])


def test_an_end_with_known_ids_is_an_end() -> None:
    here = splice(known=[6])
    (event,) = read(here.feed(said("", [6], "stop")))
    assert event["choices"][0]["finish_reason"] == "stop"


def test_other_ids_are_not_a_continuation() -> None:
    here = splice(known=[6, 7])
    with pytest.raises(Unlike):
        here.feed(said("", [6, 8]))


# Stop strings.


def test_a_stop_string_ends_the_answer_here() -> None:
    here = splice(final=True, stops=Stops(["xyz"], "a", "xy", 4))
    events = read(here.feed(said("z and more", [6, 7])))
    assert here.ended
    assert events[0]["choices"][0]["delta"] == {"content": ""}
    assert events[0]["choices"][0]["finish_reason"] == "stop"
    assert events[0]["choices"][0]["stop_reason"] == "xyz"
    assert events[1]["usage"] == usage_of(10, 6)
    assert events[2] == b"data: [DONE]"


def test_text_that_may_be_one_is_held_back_to_the_end() -> None:
    here = splice(stops=Stops(["xyz"], "a", "", 4))
    (event,) = read(here.feed(said("xy", [6])))
    assert event["choices"][0]["delta"] == {"content": ""}
    (event,) = read(here.feed(said("q", [7], "length")))
    assert event["choices"][0]["delta"] == {"content": "xyq"}
    assert event["choices"][0]["finish_reason"] == "length"


def test_known_tokens_count_towards_the_least() -> None:
    here = splice(known=[6], stops=Stops(["x"], "a", "", 4, least=5))
    assert here.feed(said("", [6])) == b""
    (event, *_) = read(here.feed(said("x", [7])))
    assert event["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize(("final", "count"), [(False, 1), (True, 2)])
def test_what_a_finished_stream_owes(final: bool, count: int) -> None:
    events = read(splice(final=final).close())
    assert len(events) == count
    assert events[-1] == b"data: [DONE]"
