"""The sim's answers against those of a real vLLM to the same requests: same heads, same keys in the same order, same
values where they are not the engine's to choose, same framing.
"""

import json

import pytest
from fakes import run
from sim_client import CHAT, COMPLETIONS, Answer, capture, captured_request, fetch, get, read_answer, running
from wire_shape import event_shapes, head_shape, shape

STREAMS = [
    ("stream", CHAT),
    ("stream_stop", CHAT),
    ("stream_token_ids", CHAT),
    ("stream_usage", CHAT),
    ("stream_usage_continuous", CHAT),
    ("stream_logprobs", CHAT),
    ("continue_final_message_stream", CHAT),
    ("tool_named_stream", CHAT),
    ("completion_stream", COMPLETIONS),
    ("messages_stream", "/v1/messages"),
    ("responses_stream", "/v1/responses"),
]
UNARY = [
    ("unary", CHAT),
    ("unary_n2", CHAT),
    ("unary_stop", CHAT),
    ("unary_logprobs", CHAT),
    ("unary_token_ids", CHAT),
    ("unary_prefix_cached", CHAT),
    ("continue_final_message", CHAT),
    ("tool_auto", CHAT),
    ("tool_named", CHAT),
    ("json_schema", CHAT),
    ("priority", CHAT),
    ("bad_role", CHAT),
    ("missing_model", CHAT),
    ("unknown_field", CHAT),
    ("completion", COMPLETIONS),
    ("completion_batch", COMPLETIONS),
    ("messages", "/v1/messages"),
    ("messages_count_tokens", "/v1/messages/count_tokens"),
    ("responses", "/v1/responses"),
    ("tokenize", "/tokenize"),
    ("tokenize_prompt", "/tokenize"),
    ("detokenize", "/detokenize"),
]


def answered(name: str, path: str, **knobs: object) -> tuple[Answer, Answer]:
    """The real answer and the sim's."""
    found: list[Answer] = []

    async def ask() -> None:
        async with running(**knobs) as sim:
            body = captured_request(name)
            found.append(await (fetch(sim, path, body) if body else get(sim, path)))

    run(ask())
    return read_answer(capture(name)), found[0]


@pytest.mark.parametrize(("name", "path"), STREAMS, ids=[name for name, _ in STREAMS])
def test_stream_has_the_shape_of_the_capture(name: str, path: str) -> None:
    real, sim = answered(name, path)
    assert head_shape(sim.head) == head_shape(real.head)
    assert event_shapes(sim.body) == event_shapes(real.body)
    assert sim.ended
    # One chunk is one event, written as the JSON libraries of both write it.
    for chunk in sim.chunks:
        text = chunk.split(b"data: ", 1)[1].removesuffix(b"\n\n")
        if text != b"[DONE]":
            assert json.dumps(json.loads(text), ensure_ascii=False, separators=(",", ":")).encode() == text


@pytest.mark.parametrize("name", ["stream", "stream_token_ids", "stream_usage", "completion_stream"])
def test_stream_has_as_many_chunks_as_the_capture(name: str) -> None:
    real, sim = answered(name, COMPLETIONS if name == "completion_stream" else CHAT)
    assert len(sim.chunks) == len(real.chunks)


def test_choices_of_a_stream_have_each_the_shape_of_the_capture() -> None:
    real, sim = answered("stream_n2", CHAT)
    assert head_shape(sim.head) == head_shape(real.head)
    for index in (0, 1):
        chosen = [
            b"".join(c for c in answer.chunks if b'"choices":[{"index":%d' % index in c or b'"index"' not in c)
            for answer in (real, sim)
        ]
        assert event_shapes(chosen[1]) == event_shapes(chosen[0])
    # Both choices are opened before either says anything.
    opening = [event["choices"][0] for event in sim.events[:2]]
    assert [(one["index"], one["delta"]["content"]) for one in opening] == [(0, ""), (1, "")]


@pytest.mark.parametrize(("name", "path"), UNARY, ids=[name for name, _ in UNARY])
def test_unary_answer_has_the_shape_of_the_capture(name: str, path: str) -> None:
    real, sim = answered(name, path)
    assert head_shape(sim.head) == head_shape(real.head)
    assert shape(sim.json) == shape(real.json)
    assert b"content-length: %d" % len(sim.body) in sim.head


def test_tool_call_cut_by_the_limit_comes_back_as_text() -> None:
    _, sim = answered("tool_required", CHAT)
    assert sim.json["choices"][0]["finish_reason"] == "tool_calls"
    real = read_answer(capture("tool_required"))
    found: list[Answer] = []

    async def ask() -> None:
        async with running() as one:
            body = json.loads(captured_request("tool_required")) | {"max_tokens": 12}
            found.append(await fetch(one, CHAT, body))

    run(ask())
    assert shape(found[0].json) == shape(real.json)
    assert found[0].json["choices"][0]["message"]["content"].startswith("<tool_call>")


def test_required_tool_is_streamed_as_a_named_one_is() -> None:
    real, sim = answered("tool_required_stream", CHAT)
    # The capture was cut by max_tokens inside a second call: compared is what comes before.
    assert event_shapes(sim.body)[:3] == event_shapes(real.body)[:3]
    last = sim.events[-3]["choices"][0]
    assert (last["delta"], last["finish_reason"]) == ({}, "tool_calls")
    calls = [e["choices"][0]["delta"].get("tool_calls", [{}])[0] for e in sim.events[1:-3]]
    arguments = "".join(call["function"].get("arguments", "") for call in calls)
    assert set(json.loads(arguments)) == {"city", "days"}


@pytest.mark.parametrize("name", ["models", "version", "health", "ping", "load"])
def test_status_route_answers_as_the_capture(name: str) -> None:
    real, sim = answered(name, "/v1/models" if name == "models" else f"/{name}")
    assert head_shape(sim.head) == head_shape(real.head)
    assert shape(json.loads(sim.body or b"0")) == shape(json.loads(real.body or b"0"))


def test_client_request_id_names_the_answer() -> None:
    async def ask() -> None:
        async with running() as sim:
            answer = await fetch(sim, CHAT, captured_request("unary_request_id"), x_request_id="req-abc-123")
            real = read_answer(capture("unary_request_id"))
            assert b"x-request-id: req-abc-123" in answer.head
            assert answer.json["id"] == real.json["id"] == "chatcmpl-req-abc-123"
            assert head_shape(answer.head) == head_shape(real.head)

    run(ask())


def test_without_the_optional_flags_their_fields_are_missing() -> None:
    off = dict.fromkeys(
        ("enable_request_id_headers", "enable_prompt_tokens_details", "enable_per_request_metrics"), False
    )
    _, stream = answered("stream_usage", CHAT, **off)
    # As in the capture of a server without them: three counts and the fingerprint.
    usage = stream.events[-2]
    assert list(usage) == ["id", "object", "created", "model", "choices", "usage", "system_fingerprint"]
    assert list(usage["usage"]) == ["prompt_tokens", "total_tokens", "completion_tokens"]
    assert not any(line.startswith(b"x-request-id") for line in stream.head)
    _, unary = answered("unary", CHAT, **off)
    assert unary.json["metrics"] is None
    assert unary.json["usage"]["prompt_tokens_details"] is None


def test_embeddings_have_the_shape_of_the_capture() -> None:
    knobs = {"served_model_names": ("minilm",), "enable_request_id_headers": False, "runner": "pooling"}
    real, sim = answered("embeddings_base64", "/v1/embeddings", **knobs)
    assert head_shape(sim.head) == head_shape(real.head)
    assert shape(sim.json) == shape(real.json)
    assert len(sim.json["data"][0]["embedding"]) == len(real.json["data"][0]["embedding"])
