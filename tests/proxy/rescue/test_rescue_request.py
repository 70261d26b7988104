"""What other workers are asked: the prompt's tokens, the answer's text, and what comes behind."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from tailrace.proxy.body import JsonBody
from tailrace.proxy.fault import Reject
from tailrace.proxy.rescue import request
from tailrace.proxy.rescue.exact import HARMLESS, WITHOUT_EFFECT
from tailrace.proxy.trace.context import TraceContext

MESSAGES = [{"role": "user", "content": "hi"}]


def body(**fields: Any) -> JsonBody:
    return JsonBody(orjson.dumps(fields), 64)


def test_the_prompt_of_a_chat() -> None:
    asked = body(
        model="alias", messages=MESSAGES, chat_template_kwargs={"a": 1}, add_generation_prompt=False,
        continue_final_message=True, temperature=1, stream=True, chat_template="{{x}}",
    )  # fmt: skip
    assert orjson.loads(request.tokenize(asked, 'served "x"', "chat")) == {
        "model": 'served "x"',
        "messages": MESSAGES,
        "chat_template_kwargs": {"a": 1},
        "add_generation_prompt": False,
        "continue_final_message": True,
        "chat_template": "{{x}}",
    }


def test_the_prompt_of_a_text() -> None:
    asked = body(model="m", prompt="hi", add_special_tokens=False, messages=MESSAGES)
    assert orjson.loads(request.tokenize(asked, "m", "completions")) == {
        "model": "m", "prompt": "hi", "add_special_tokens": False
    }  # fmt: skip


@pytest.mark.parametrize(
    ("prompt", "ids"), [([1, 2], [1, 2]), ([], []), ("hi", None), ([1, "2"], None), ([[1]], None), (None, None)]
)
def test_a_prompt_of_tokens_needs_no_question(prompt: Any, ids: list[int] | None) -> None:
    assert request.prompt_ids(body(prompt=prompt)) == ids


@pytest.mark.parametrize(
    ("route", "fields", "prompt", "longest", "most"),
    [
        ("chat", {}, 10, 100, 90),
        ("chat", {"max_tokens": 5}, 10, 100, 5),
        ("chat", {"max_tokens": 500}, 10, 100, 90),
        ("chat", {"max_completion_tokens": 7, "max_tokens": 5}, 10, 100, 7),
        ("chat", {"max_completion_tokens": None, "max_tokens": 5}, 10, 100, 5),
        ("chat", {"max_tokens": 5}, 10, 0, 5),
        ("completions", {}, 10, 100, 16),
        ("completions", {}, 95, 100, 5),
        ("completions", {}, 10, 0, 16),
        ("completions", {"max_tokens": 40}, 10, 100, 40),
        ("completions", {"max_tokens": None}, 10, 100, 16),
        ("completions", {"max_completion_tokens": 3}, 10, 100, 16),
    ],
)
def test_how_long_the_whole_answer_may_be(
    route: str, fields: dict[str, Any], prompt: int, longest: int, most: int
) -> None:
    assert request.room(body(model="m", **fields), route, prompt, longest) == most


@pytest.mark.parametrize("wrong", [5.5, "5", True, [5]])
def test_a_bound_that_is_none_is_refused(wrong: Any) -> None:
    with pytest.raises(Reject):
        request.room(body(max_tokens=wrong), "chat", 10, 100)


def going_on(*, ids: list[int], most: int = 20, usage: tuple[bool, bool] = (False, False), **fields: Any) -> Any:
    asked = body(model="alias", messages=MESSAGES, **fields)
    return orjson.loads(request.go_on(asked, "served", [1, 2, 3], ids, most, usage))


def test_a_plain_continuation() -> None:
    assert going_on(ids=[7, 8]) == {
        "model": "served", "prompt": [1, 2, 3, 7, 8], "max_tokens": 18, "stream": True, "return_token_ids": True
    }  # fmt: skip


def test_how_tokens_are_chosen_stays_as_it_was() -> None:
    fields = {
        "temperature": 0.5, "top_p": 0.9, "top_k": 5, "min_p": 0.1, "stop_token_ids": [4], "ignore_eos": True,
        "skip_special_tokens": False, "spaces_between_special_tokens": False, "logit_bias": {"3": 1},
        "allowed_token_ids": [1], "priority": 3, "cache_salt": "s", "include_stop_str_in_output": True, "user": "u",
        "repetition_penalty": 1.0, "presence_penalty": 0, "frequency_penalty": 0,
    }  # fmt: skip
    asked = going_on(ids=[7], **fields, n=1, seed=5, echo=False, max_tokens=20, min_tokens=0, stream=True)
    assert {name: asked[name] for name in fields} == fields
    assert set(asked) == {*fields, "model", "prompt", "max_tokens", "stream", "return_token_ids"}


# What says nothing of how tokens are drawn and written, or is said in another way.
OTHERWISE = {
    "model", "stream", "stream_options", "stop", "max_tokens", "min_tokens", "max_completion_tokens",
    "return_token_ids", "metadata", "safety_identifier", "service_tier", "prompt_cache_key", "parallel_tool_calls",
}  # fmt: skip
# What a continuation is without, whatever a model's own settings are.
NEVER = {
    "n", "best_of", "echo", "logprobs", "top_logprobs", "store", "suffix", "use_beam_search", "response_format",
    "tools", "tool_choice", "functions", "bad_words",
}  # fmt: skip


@pytest.mark.parametrize("route", HARMLESS)
def test_every_field_that_is_no_obstacle_is_asked_again(route: str) -> None:
    """A model may have settings of its own, which a request overrides with what would change nothing elsewhere."""
    of_the_prompt = set(request.OF_A_CHAT if route == "chat" else request.OF_A_TEXT)
    assert HARMLESS[route] | set(WITHOUT_EFFECT) <= {*request.CARRIED, *of_the_prompt, *OTHERWISE, *NEVER}


@pytest.mark.parametrize(("least", "left"), [(5, 3), (3, 1), (2, None), (0, None)])
def test_least_tokens_are_fewer_by_those_that_came(least: int, left: int | None) -> None:
    assert going_on(ids=[7, 8], min_tokens=least).get("min_tokens") == left


def test_stop_strings_are_looked_for_here() -> None:
    assert "stop" not in going_on(ids=[7], stop=["x"])


@pytest.mark.parametrize(
    ("usage", "options"),
    [
        ((False, False), None),
        ((True, False), {"include_usage": True}),
        ((True, True), {"include_usage": True, "continuous_usage_stats": True}),
        ((False, True), None),
    ],
)
def test_usage_as_it_was_asked_for(usage: tuple[bool, bool], options: Any) -> None:
    assert going_on(ids=[7], usage=usage, stream_options={"x": 1}).get("stream_options") == options


def test_the_text_of_tokens() -> None:
    assert orjson.loads(request.detokenize("s", [5, 6])) == {"model": "s", "tokens": [5, 6]}


@pytest.mark.parametrize(
    ("stop", "stops"),
    [("x", ["x"]), ("", []), (["a", "", "b"], ["a", "b"]), (None, []), ([], []), ([1, "a"], ["a"]), ({"a": 1}, [])],
)
def test_stop_strings(stop: Any, stops: list[str]) -> None:
    assert request.stops_of(body(stop=stop)) == stops


def test_the_head_says_whose_it_is_and_which_attempt() -> None:
    call: Any = SimpleNamespace(
        id="req", tried_before=1, peer=SimpleNamespace(forwarded=b"x-forwarded-for: 1.2.3.4\r\n"), trace=None
    )
    worker: Any = SimpleNamespace(post=b"POST /base", headers=b"host: w\r\nauthorization: Bearer k\r\n")
    lines = request.head(call, worker, 2, request.TOKENIZE, 17).split(b"\r\n")
    assert lines[0] == b"POST /base/tokenize HTTP/1.1"
    assert lines[-2:] == [b"", b""]
    assert set(lines[1:-2]) == {
        b"host: w", b"authorization: Bearer k", b"x-tailrace-attempt: 3", b"x-forwarded-for: 1.2.3.4",
        b"x-request-id: req-2", b"content-type: application/json", b"accept-encoding: identity",
        b"content-length: 17",
    }  # fmt: skip
    call.trace = TraceContext("req", "4bf9" * 8, "c0ffee" * 2 + "00", "", 1)
    told = request.head(call, worker, 2, request.TOKENIZE, 17).split(b"\r\n")
    assert set(told) - set(lines) == {b"traceparent: 00-%b-%b02-01" % (b"4bf9" * 8, b"c0ffee" * 2 + b"00")}
