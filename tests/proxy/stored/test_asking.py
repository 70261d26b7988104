"""Which requests may have their answers kept, what clients say of it, and which requests are the same."""

from __future__ import annotations

import math
import time
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from tailrace.proxy.body import JsonBody
from tailrace.proxy.head import RequestHead
from tailrace.proxy.routes import INFERENCE
from tailrace.proxy.stored.answer import Answer
from tailrace.proxy.stored.asking import drawn, obstacle, refers_elsewhere
from tailrace.proxy.stored.canonical import canonical, check_of, fields_of, key_of
from tailrace.proxy.stored.wishes import wishes_of

pytestmark = pytest.mark.interpreted
CHAT = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "temperature": 0}


def call_of(body: Any, route: str = "chat", **headers: str) -> Any:
    found = next(each for each in INFERENCE if each.name == route)
    lines = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    raw = body if isinstance(body, bytes) else orjson.dumps(body)
    entry = SimpleNamespace(pool=SimpleNamespace(name="p"), served="served")
    return SimpleNamespace(
        route=found,
        head=RequestHead("POST", found.path, b"", found.path.encode(), lines, "1.1"),
        body=JsonBody(raw, 64),
        entry=entry,
        model="m",
        stream=False,
    )


def form_of(body: Any, route: str = "chat", scope: str = "=t") -> bytes:
    call = call_of(body, route)
    fields = fields_of(call)
    assert fields is not None
    return canonical(call, scope, fields)


@pytest.mark.parametrize(
    "other",
    [
        {"stream": True},
        {"stream": True, "stream_options": {"include_usage": True}},
        {"user": "somebody"},
        {"metadata": {"run": "7"}},
        {"priority": 3},
        {"request_id": "mine"},
        {"model": "another-name-for-the-same"},
        {"safety_identifier": "x"},
        {"store": False},
    ],
)
def test_what_changes_nothing_does_not_count(other: dict[str, Any]) -> None:
    assert form_of({**CHAT, **other}) == form_of(CHAT)


@pytest.mark.parametrize(
    "other",
    [
        {"temperature": 0.1},
        {"max_tokens": 5},
        {"seed": 1},
        {"stop": ["x"]},
        {"n": 2},
        {"messages": [{"role": "user", "content": "Hi"}]},
        {"tools": []},
        {"cache_salt": "x"},
        {"something_new": 1},
    ],
)
def test_what_may_change_the_answer_counts(other: dict[str, Any]) -> None:
    assert form_of({**CHAT, **other}) != form_of(CHAT)


def test_spaces_and_the_order_of_fields_do_not_count_but_that_within_fields_does() -> None:
    spaced = b'{ "temperature": 0, "messages": [ {"role":"user","content":"hi"} ], "model": "m" }'
    assert form_of(spaced) == form_of(CHAT)
    schema = {"type": "object", "properties": {"a": {}, "b": {}}}
    turned = {"type": "object", "properties": {"b": {}, "a": {}}}
    assert form_of({**CHAT, "guided_json": schema}) != form_of({**CHAT, "guided_json": turned})


def test_scopes_and_routes_are_apart() -> None:
    forms = {form_of(CHAT, scope=scope) for scope in ("=t", "=u", "*t", "#t", "")} | {form_of(CHAT, "messages")}
    assert len(forms) == 6
    assert len({key_of(form) for form in forms}) == 6


def test_a_stream_of_the_responses_api_is_another_thing() -> None:
    asked = {"model": "m", "input": "hi"}
    assert form_of(asked, "responses") != form_of({**asked, "stream": True}, "responses")


def test_key_and_check_are_of_two_kinds() -> None:
    assert key_of(b"x") != check_of(b"x")
    assert len(key_of(b"x")) == len(check_of(b"x")) == 16


def test_what_tools_were_given_is_told_apart_to_the_last_digit() -> None:
    def asked(account: bytes) -> Any:
        raw = b'{"model":"m","messages":[{"role":"assistant","content":[{"type":"tool_use","input":{"a": %b}}]}]}'
        return call_of(raw % account, "messages")

    fields = [fields_of(asked(number)) for number in (b"12345678901234567", b"12345678901234568")]
    assert None not in fields
    assert fields[0] != fields[1]
    assert fields_of(asked(b"123456789012345678901234567890")) is None


def test_what_cannot_be_read_for_sure_is_not_kept() -> None:
    body = call_of(b'{"model":"m"}')
    body.body.edit("a", b'"\\ud800"')
    assert fields_of(body) is None


@pytest.mark.parametrize(
    ("route", "body", "by_chance"),
    [
        ("chat", {"temperature": 0}, False),
        ("chat", {"temperature": 0.0}, False),
        ("chat", {"temperature": False}, True),
        ("chat", {"temperature": None}, True),
        ("chat", {"temperature": "0"}, True),
        ("chat", {"temperature": 0.2}, True),
        ("chat", {"seed": 1}, True),
        ("chat", {}, True),
        ("embeddings", {}, False),
        ("rerank", {}, False),
        ("count_tokens", {}, False),
    ],
)
def test_what_chance_has_a_part_in(route: str, body: dict[str, Any], by_chance: bool) -> None:
    assert drawn(call_of(body, route)) is by_chance


@pytest.mark.parametrize(
    ("route", "body", "why"),
    [
        ("chat", {}, None),
        ("chat", {"tools": [{"type": "function", "function": {"name": "f"}}]}, None),
        ("chat", {"store": True}, "effects"),
        ("chat", {"tools": [{"type": "web_search_preview"}]}, "effects"),
        ("chat", {"kv_transfer_params": {"a": 1}}, "effects"),
        ("chat", {"logprobs": True}, "form"),
        ("chat", {"logprobs": False, "top_logprobs": None}, None),
        ("completions", {"logprobs": 0}, "form"),
        ("chat", {"return_token_ids": True}, "form"),
        ("chat", {"stream_options": {"continuous_usage_stats": True}}, "form"),
        ("chat", {"audio": {"voice": "x"}}, "form"),
        ("responses", {"store": False}, None),
        ("responses", {}, "effects"),
        ("responses", {"store": True}, "effects"),
        ("responses", {"store": False, "conversation": "c"}, "effects"),
        ("messages", {"mcp_servers": [{"url": "x"}]}, "effects"),
        ("messages", {"tools": [{"name": "f", "input_schema": {}}]}, None),
        ("embeddings", {"logprobs": True}, None),
    ],
)
def test_what_may_not_be_kept(route: str, body: dict[str, Any], why: str | None) -> None:
    call = call_of({"model": "m", **body}, route)
    fields = fields_of(call)
    assert fields is not None
    assert obstacle(call, fields) == why


def test_a_request_that_must_not_be_repeated_is_not_kept() -> None:
    call = call_of(CHAT, x_tailrace_idempotent="false")
    assert obstacle(call, fields_of(call) or {}) == "effects"


@pytest.mark.parametrize(
    ("part", "elsewhere"),
    [
        ({"type": "image_url", "image_url": {"url": "https://x/y.png"}}, True),
        ({"type": "input_image", "image_url": "https://x/y.png"}, True),
        ({"type": "image", "source": {"type": "url", "url": "https://x/y.png"}}, True),
        ({"type": "file", "file": {"file_id": "f-1"}}, True),
        ({"type": "image_url", "image_url": None, "uuid": "u"}, True),
        ({"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}, False),
        ({"type": "text", "text": 'say "url":"https://x" now'}, False),
    ],
)
def test_media_that_lie_elsewhere(part: dict[str, Any], elsewhere: bool) -> None:
    form = form_of({**CHAT, "messages": [{"role": "user", "content": [part]}]})
    assert refers_elsewhere(form) is elsewhere


@pytest.mark.parametrize(
    ("headers", "wishes"),
    [
        ({}, (True, True, False, False)),
        ({"cache_control": "max-age=0"}, (True, True, False, False)),
        ({"cache_control": "no-store"}, (False, False, False, False)),
        ({"x_tailrace_private": "1"}, (False, False, False, False)),
        ({"x_tailrace_private": "no"}, (True, True, False, False)),
        ({"cache_control": "foo, No-Cache"}, (False, True, False, False)),
        ({"cache_control": "only-if-cached"}, (True, True, True, False)),
        ({"cache_control": "only-if-cached, no-store"}, (False, False, True, False)),
        ({"x_tailrace_cache": "on"}, (True, True, False, True)),
        ({"x_tailrace_cache": " OFF "}, (False, False, False, False)),
        ({"x_tailrace_cache": "on", "cache_control": "no-store"}, (False, False, False, False)),
        ({"x_tailrace_cache": "maybe"}, (True, True, False, False)),
    ],
)
def test_wishes(headers: dict[str, str], wishes: tuple[bool, ...]) -> None:
    found = wishes_of(call_of(CHAT, **headers))
    assert (found.reads, found.kept, found.only, found.wanted) == wishes


@pytest.mark.parametrize(
    ("control", "oldest"),
    [
        ("max-age=60", 60),
        ('foo, Max-Age="5"', 5),
        ("max-age=60, max-age=0", 0),
        ("max-age=-1", math.inf),
        ("max-age=", math.inf),
        ("max-stale=60", math.inf),
    ],
)
def test_how_old_an_answer_may_be(control: str, oldest: float) -> None:
    wishes = wishes_of(call_of(CHAT, cache_control=control))
    assert wishes.oldest == oldest
    now = time.time()
    ages = (0, 4, 40, 4000)
    taken = [age for age in ages if wishes.take(Answer(b"", b"", now - age, now + 9, "", "m", "chat"))]
    assert taken == [age for age in ages if age < oldest]
