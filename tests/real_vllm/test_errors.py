"""What a real vLLM refuses, as the SDKs see it through the gateway; and its key, which the gateway holds."""

from __future__ import annotations

from typing import Any

import anthropic
import openai
import pytest
from tailrace.proxy.outcome import Ending

from real_vllm.engines import KEY
from real_vllm.scene import CHAT, HELLO, run, scene

GOOD: dict[str, Any] = {"model": "tiny", "messages": HELLO, "max_tokens": 4}
LONG = [{"role": "user", "content": "river " * 20000}]
BAD = {
    "temperature": {**GOOD, "temperature": 9},
    "top_p": {**GOOD, "top_p": 2},
    "n": {**GOOD, "n": 0},
    "max_tokens": {**GOOD, "max_tokens": -1},
    "no messages": {"model": "tiny"},
    "empty messages": {"model": "tiny", "messages": []},
    "type": {**GOOD, "messages": "hello"},
    "tool_choice": {**GOOD, "tool_choice": "required"},
    "streamed": {**GOOD, "temperature": 9, "stream": True},
    "too many tokens": {**GOOD, "max_tokens": 50000},
    "unknown at the engine": {**GOOD, "model": "ghost"},
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_request_comes_back_byte_for_byte(engine, name):
    async def body():
        async with scene(engine) as s:
            front = await s.front.post(CHAT, BAD[name])
            direct = await s.direct.post(CHAT, BAD[name], {"authorization": f"Bearer {KEY}"})
            assert direct.status in (400, 404)
            assert (front.status, front.body) == (direct.status, direct.body)
            assert front.header("content-type") == direct.header("content-type")
            outcome = await s.outcome()
            assert (outcome.ending, outcome.status) == (Ending.REFUSED, direct.status)

    run(body())


def test_an_unknown_model(engine):
    async def body():
        async with scene(engine) as s:
            with pytest.raises(openai.NotFoundError, match="nobody"):
                await s.openai.chat.completions.create(**{**GOOD, "model": "nobody"})
            with pytest.raises(openai.NotFoundError, match="The model `ghost` does not exist"):
                await s.openai.chat.completions.create(**{**GOOD, "model": "ghost"})
            with pytest.raises(anthropic.NotFoundError):
                await s.anthropic.messages.create(**{**GOOD, "model": "nobody"})
            with pytest.raises(anthropic.NotFoundError):
                await s.anthropic.messages.create(**{**GOOD, "model": "ghost"})
            assert {outcome.status for outcome in await s.outcomes(4)} == {404}

    run(body())


def test_too_long_a_context_is_a_status_in_a_stream_too(engine):
    async def body():
        async with scene(engine) as s:
            for stream in (False, True):
                with pytest.raises(openai.BadRequestError, match="maximum context length"):
                    await s.openai.chat.completions.create(**{**GOOD, "messages": LONG}, stream=stream)
            with pytest.raises(anthropic.BadRequestError):
                async with s.anthropic.messages.stream(**{**GOOD, "messages": LONG}):
                    pass
            assert {outcome.status for outcome in await s.outcomes(3)} == {400}

    run(body())


def test_embeddings_of_a_model_that_has_none(engine):
    async def body():
        async with scene(engine) as s:
            with pytest.raises(openai.NotFoundError):
                await s.openai.embeddings.create(model="tiny", input="river")
            assert (await s.outcome()).status == 404

    run(body())


def test_a_body_that_is_no_json(engine):
    async def body():
        async with scene(engine) as s:
            answer = await s.front.post(CHAT, b'{"model": "tiny", ')
            assert answer.status == 400
            assert answer.json()["error"]["type"] == "invalid_request_error"

    run(body())


@pytest.mark.parametrize("stream", [False, True])
def test_a_wrong_key_is_the_gateways_own_trouble(engine, stream):
    """The engine says `{"error":"Unauthorized"}`, a string: clients get an object, and need not check their key."""

    async def body():
        async with scene(engine, key="wrong") as s:
            with pytest.raises(openai.InternalServerError) as caught:
                await s.openai.chat.completions.create(**GOOD, stream=stream)
            assert caught.value.status_code == 502
            assert caught.value.code == "upstream_auth_failed"
            with pytest.raises(anthropic.InternalServerError):
                await s.anthropic.messages.create(**GOOD)
            # vLLM's key does not cover this path.
            assert (await s.front.post("/tokenize", {"model": "tiny", "prompt": "a"})).status == 200
            outcomes = await s.outcomes(3)
            assert [(outcome.status, outcome.fault and outcome.fault.kind) for outcome in outcomes[:2]] == [
                (502, "worker_refused")
            ] * 2

    run(body())
