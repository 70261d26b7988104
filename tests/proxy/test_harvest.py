"""What plugins need of the engine: asked once, read once, removed once."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
from fakes import RawClient, Upstream, chat_chunk, event, gateway, json_answer, run, sse_answer, yaml_for
from tailrace.proxy.body import JsonBody
from tailrace.proxy.call import Call
from tailrace.proxy.harvest import Harvest
from tailrace.proxy.outcome import Outcome, Usage
from tailrace.proxy.plugin import Needs, Plugin
from tailrace.proxy.sending import added
from tailrace.proxy.usage import usage_in

SEEN: list[tuple[Usage | None, list[int] | None]] = []


@dataclass(frozen=True, slots=True, kw_only=True)
class Nothing:
    """No settings."""


class WantsUsage(Plugin[Nothing]):
    Config: ClassVar[type] = Nothing
    needs = Needs.USAGE

    def on_complete(self, call: Call, outcome: Outcome) -> None:
        SEEN.append((outcome.usage, call.token_ids))


class WantsIds(WantsUsage):
    needs = Needs.USAGE | Needs.TOKEN_IDS


DONE = event("[DONE]")
USAGE = {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9, "prompt_tokens_details": {"cached_tokens": 3}}
ASK: dict[str, Any] = {"model": "m", "stream": True, "messages": []}


def usage_event() -> bytes:
    return event({"id": "1", "choices": [], "usage": USAGE})


def served(request: dict[str, Any], answer: bytes, plugin: str = "WantsUsage") -> tuple[dict[str, Any], bytes]:
    """The body that the worker saw and the answer's body that the client saw."""
    SEEN.clear()

    async def main() -> tuple[dict[str, Any], bytes]:
        async with Upstream(answer) as upstream:
            yaml = yaml_for(upstream, plugins=f'["test_harvest:{plugin}"]')
            async with gateway(yaml) as process, RawClient(process.doors[0].shown) as client:
                got = await client.post("/v1/chat/completions", request)
                return upstream.requests[0].json(), got.body

    return run(main())


def test_usage_asked_for_on_the_plugins_behalf_is_taken_out_again() -> None:
    text = [chat_chunk("a"), chat_chunk("b", finish="stop")]
    saw, got = served(ASK, sse_answer([*text, usage_event(), DONE]))
    assert saw["stream_options"] == {"include_usage": True}
    assert got == b"".join([*text, b"data: [DONE]\n\n"])
    assert [(Usage(7, 2, 3), None)] == SEEN


def test_usage_that_the_client_asked_for_stays() -> None:
    ask = {**ASK, "stream_options": {"include_usage": True, "x_vendor": 1}}
    text = [chat_chunk("a", finish="stop"), usage_event()]
    saw, got = served(ask, sse_answer([*text, DONE]))
    assert saw["stream_options"] == ask["stream_options"]
    assert got == b"".join([*text, b"data: [DONE]\n\n"])
    assert [(Usage(7, 2, 3), None)] == SEEN


def test_other_stream_options_reach_the_worker() -> None:
    saw, _ = served(
        {**ASK, "stream_options": {"include_usage": False, "x": 1e5}},
        sse_answer([chat_chunk("a", finish="stop"), DONE]),
    )
    assert saw["stream_options"] == {"include_usage": True, "x": 1e5}


def test_usage_on_the_finish_chunk_is_cut_out_of_it_alone() -> None:
    last = json.loads(chat_chunk("b", finish="stop")[6:])
    with_usage = event({**last, "usage": USAGE})
    _, got = served(ASK, sse_answer([chat_chunk("a"), with_usage, DONE]))
    events = [json.loads(line[6:]) for line in got.split(b"\n\n") if line.startswith(b"data: {")]
    assert events[-1] == last
    assert [(Usage(7, 2, 3), None)] == SEEN


def test_nothing_is_injected_into_a_unary_request_and_its_usage_is_read() -> None:
    answer = {"choices": [{"index": 0}], "usage": USAGE}
    saw, got = served({"model": "m", "messages": []}, json_answer(answer))
    assert "stream_options" not in saw
    assert json.loads(got) == answer
    assert [(Usage(7, 2, 3), None)] == SEEN


def test_token_ids_are_kept_for_the_plugin_and_hidden_from_the_client() -> None:
    def token(text: str, ids: list[int] | None, finish: str | None = None) -> dict[str, Any]:
        return {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish, "token_ids": ids}]}

    first = {"choices": [{"index": 0, "delta": {"role": "assistant"}}], "prompt_token_ids": [1, 2]}
    answer = sse_answer([event(first), event(token("a", [11])), event(token("b", [12, 13], "stop")), DONE])
    saw, got = served(ASK, answer, "WantsIds")
    assert saw["return_token_ids"] is True
    assert b"token_ids" not in got
    assert b'"content":"b"' in got.replace(b'": "', b'":"')
    assert SEEN[0][1] == [11, 12, 13]


@pytest.mark.parametrize(
    ("body", "usage"),
    [
        ({"usage": {"input_tokens": 3, "output_tokens": 4}}, Usage(3, 4, 0)),
        ({"message": {"usage": {"input_tokens": 3, "cache_read_input_tokens": 2}}}, Usage(5, 0, 2)),
        (
            {
                "response": {
                    "usage": {"input_tokens": 1, "output_tokens": 2, "input_tokens_details": {"cached_tokens": 1}}
                }
            },
            Usage(1, 2, 1),
        ),
        ({"usage": {"output_tokens": 7, "prompt_tokens": 100}}, Usage(100, 7, 0)),
        ({"usage": {"prompt_tokens": 100, "input_tokens_details": {"cached_tokens": 3}}}, Usage(100, 0, 3)),
        ({"usage": {"prompt_tokens": 100, "prompt_tokens_details": {"cached_tokens": 3}}}, Usage(100, 0, 3)),
        ({"usage": {"prompt_tokens": 5, "completion_tokens": True}}, Usage(5, 1, 0)),
        ({"usage": {"prompt_tokens": 5, "completion_tokens": 2, "prompt_tokens_details": None}}, Usage(5, 2, 0)),
        ({"usage": {"prompt_tokens": -1, "completion_tokens": 1e9}}, None),
        ({"usage": None}, None),
        ([], None),
    ],
)
def test_usage_in_every_spelling(body: Any, usage: Usage | None) -> None:
    assert usage_in(json.dumps(body).encode()) == usage


@pytest.mark.interpreted  # its call is none
@pytest.mark.parametrize(
    ("options", "names"),
    [
        (None, {b"stream_options", b"include_usage", b"return_token_ids"}),
        ({"x_vendor": 1}, {b"include_usage", b"return_token_ids"}),
        ({"include_usage": False}, {b"return_token_ids"}),
        ({"include_usage": True}, {b"return_token_ids"}),
    ],
)
def test_what_a_refusal_may_name_is_what_the_client_has_not_said(
    options: dict[str, Any] | None, names: set[bytes]
) -> None:
    body = JsonBody(json.dumps(ASK | ({} if options is None else {"stream_options": options})).encode(), 64)
    harvest = Harvest(None)  # type: ignore[arg-type]
    harvest.ask_usage(body, running=False)
    harvest.asked_ids = True
    assert set(added(harvest)) == names
