"""Every refusal of which there is a capture, byte for byte but for the date and the request id."""

from typing import Any

import pytest
from fakes import run, until
from sim_client import CHAT, COMPLETIONS, HELLO, begin, capture, captured_request, fetch, get, read_answer, running
from tailrace.worker.sim.tokenizer import VOCAB_SIZE
from wire_shape import head_shape

REFUSED = [
    ("bad_tool_choice", CHAT, {}),
    ("bad_type", CHAT, {}),
    ("completion_negative_max_tokens", COMPLETIONS, {}),
    ("context_length_max_tokens", CHAT, {}),
    ("context_length_prompt", CHAT, {}),
    ("embeddings_on_generate_model", "/v1/embeddings", {"runner": "generate"}),
    ("empty_body", CHAT, {}),
    ("empty_messages", CHAT, {}),
    ("image_on_text_model", CHAT, {}),
    ("malformed_json", CHAT, {}),
    ("messages_unknown_model", "/v1/messages", {}),
    ("missing_messages", CHAT, {}),
    ("n_zero", CHAT, {}),
    ("negative_max_tokens", CHAT, {}),
    ("not_json_object", CHAT, {}),
    ("priority_bad", CHAT, {}),
    ("responses_unknown_model", "/v1/responses", {}),
    ("stream_context_length", CHAT, {}),
    ("stream_unknown_model", CHAT, {}),
    ("temperature_range", CHAT, {}),
    ("top_p_range", CHAT, {}),
    ("unknown_field_stream", CHAT, {}),
    ("unknown_model", CHAT, {}),
    ("zero_max_tokens", CHAT, {}),
]


def assert_same(sim: Any, name: str) -> None:
    real = read_answer(capture(name))
    assert sim.body == real.body
    # The length is part of the head and of the truth, so only dates and ids are blanked by then.
    assert head_shape(sim.head) == head_shape(real.head)
    assert b"content-length: %d" % len(real.body) in sim.head


@pytest.mark.parametrize(("name", "path", "knobs"), REFUSED, ids=[name for name, _, _ in REFUSED])
def test_refusal_is_that_of_the_capture(name: str, path: str, knobs: dict[str, Any]) -> None:
    async def ask() -> None:
        async with running(**knobs) as sim:
            assert_same(await fetch(sim, path, captured_request(name)), name)
            assert sim.scheduler.running == sim.scheduler.waiting == sim.engine.load == 0

    run(ask())


def test_pooling_model_has_no_chat() -> None:
    async def ask() -> None:
        knobs = {"served_model_names": ("minilm",), "enable_request_id_headers": False, "runner": "pooling"}
        async with running(**knobs) as sim:
            name = "embeddings_model_chat_error"
            assert_same(await fetch(sim, CHAT, captured_request(name)), name)

    run(ask())


def test_wrong_content_type_route_and_method() -> None:
    async def ask() -> None:
        async with running() as sim:
            body = captured_request("wrong_content_type")
            assert_same(await fetch(sim, CHAT, body, content_type="text/plain"), "wrong_content_type")
            assert_same(await fetch(sim, "/v1/nothing", b"{}"), "not_found")
            assert_same(await get(sim, CHAT), "method_not_allowed")

    run(ask())


def test_api_key_guards_v1_alone() -> None:
    async def ask() -> None:
        async with running(api_keys=("one", "two")) as sim:
            assert_same(await fetch(sim, CHAT, HELLO), "no_api_key")
            assert_same(await fetch(sim, CHAT, HELLO, authorization="Bearer three"), "bad_api_key")
            assert_same(await fetch(sim, "/v1/nothing", HELLO, authorization="one"), "bad_api_key")
            answer = await fetch(sim, CHAT, HELLO | {"max_tokens": 1}, authorization="Bearer two")
            assert answer.status == 200
            for path in ("/health", "/metrics", "/version", "/load"):
                assert (await get(sim, path)).status == 200
            assert (await fetch(sim, "/tokenize", {"prompt": "open"})).status == 200

    run(ask())


@pytest.mark.parametrize("stream", [False, True])
def test_full_queue_counts_running_and_waiting(stream: bool) -> None:
    async def ask() -> None:
        async with running(max_num_seqs=1, max_num_queued_reqs=2, itl_ms=60_000) as sim:
            kept = [await begin(sim) for _ in range(2)]
            await until(lambda: sim.scheduler.running == 1 and sim.scheduler.waiting == 1)
            refused = await fetch(sim, CHAT, HELLO | {"stream": stream})
            assert_same(refused, "overload_admission")
            assert not any(line.startswith(b"retry-after") for line in refused.head)
            assert sim.metrics.rejected == 1
            for _, writer in kept:
                writer.close()

    run(ask())


def test_prompt_and_output_together_too_long() -> None:
    async def ask() -> None:
        async with running(max_model_len=100) as sim:
            refused = await fetch(sim, COMPLETIONS, {"prompt": [10] * 70, "max_tokens": 41})
            assert refused.status == 400
            assert refused.json["error"]["param"] == "input_tokens"
            assert (
                "you requested 41 output tokens and your prompt contains at least 60 input tokens"
                in (refused.json["error"]["message"])
            )
            fits = await fetch(sim, COMPLETIONS, {"prompt": [10] * 60, "max_tokens": 40})
            assert fits.json["usage"]["total_tokens"] == 100

    run(ask())


@pytest.mark.parametrize(
    ("body", "part"),
    [
        ({"prompt": []}, "You must pass at least one prompt"),
        ({}, "Either prompt or prompt_embeds must be provided and non-empty. (parameter=prompt)"),
        ({"prompt": ""}, "Either prompt or prompt_embeds must be provided and non-empty."),
        ({"prompt": [[]]}, "cannot be empty"),
        ({"prompt": [10**9]}, "out of vocabulary"),
        ({"prompt": [-1]}, "out of vocabulary"),
        ({"prompt": {"a": 1}}, "string_type"),
        ({"prompt": "a", "stop": [1]}, "string_type"),
        ({"prompt": "a", "stop": ""}, "empty string"),
        ({"prompt": "a", "max_tokens": 1.5}, "int_from_float"),
        ({"prompt": "a", "stream": "perhaps"}, "bool_parsing"),
        ({"prompt": "a", "temperature": "hot"}, "float_parsing"),
        ({"prompt": "a", "temperature": 0, "n": 2}, "greedy"),
        (
            {"prompt": "a", "temperature": 99},
            "temperature must be in [0, 2], got 99.0. (parameter=temperature, value=99.0)",
        ),
        ({"prompt": "a", "temperature": 2.01}, "temperature must be in [0, 2], got 2.01."),
        ({"prompt": "a", "temperature": "nan"}, "temperature must be a finite number, got nan."),
        ({"prompt": "a", "temperature": "-inf"}, "temperature must be a finite number, got -inf."),
        ({"prompt": "a", "stream_options": []}, "dict_type"),
        ({"prompt": "a", "min_tokens": -1}, "min_tokens must be greater than or equal to 0, got -1."),
        (
            {"prompt": "a", "max_tokens": 2, "min_tokens": 5},
            "min_tokens must be less than or equal to max_tokens=2, got 5.",
        ),
        (
            {"prompt": "a", "logprobs": 100},
            "Requested sample logprobs of 100, which is greater than max allowed: 20 (par",
        ),
        ({"prompt": "a", "logprobs": -1}, f"Requested sample logprobs of {VOCAB_SIZE}, which is greater"),
        ({"prompt": "a", "logprobs": -2}, "logprobs must be non-negative or -1, got -2."),
    ],
)
def test_nonsense_is_refused_and_costs_nothing(body: dict[str, Any], part: str) -> None:
    async def ask() -> None:
        async with running() as sim:
            refused = await fetch(sim, COMPLETIONS, body)
            assert refused.status == 400
            assert part in refused.json["error"]["message"]
            assert sim.scheduler.running == sim.engine.load == 0

    run(ask())


def test_the_highest_temperature_is_taken() -> None:
    async def ask() -> None:
        async with running() as sim:
            for path, body in ((COMPLETIONS, {"prompt": "a"}), (CHAT, HELLO)):
                assert (await fetch(sim, path, body | {"temperature": 2, "max_tokens": 1})).status == 200

    run(ask())


@pytest.mark.parametrize("body", [b"\xff\xfe", b'{"messages": [' + b"[" * 100_000, b'"text"', b"null", b"1e999"])
def test_bodies_that_are_no_objects_are_refused(body: bytes) -> None:
    async def ask() -> None:
        async with running() as sim:
            assert (await fetch(sim, CHAT, body)).status == 400

    run(ask())
