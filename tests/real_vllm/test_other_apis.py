"""Responses, messages and the small routes of a real vLLM through the gateway."""

from __future__ import annotations

from typing import Any

from tailrace.proxy.outcome import Ending

from real_vllm.scene import HELLO, run, scene

MESSAGE: dict[str, Any] = {"model": "tiny", "messages": HELLO, "max_tokens": 16, "extra_body": {"temperature": 0}}
RESPONSE: dict[str, Any] = {"model": "tiny", "input": "Rivers?", "max_output_tokens": 16, "temperature": 0}


def test_responses(engine):
    async def body():
        async with scene(engine) as s:
            whole = await s.openai.responses.create(**RESPONSE)
            assert whole.output_text == (await s.direct.openai.responses.create(**RESPONSE)).output_text
            assert whole.usage.output_tokens == 16
            text = ""
            kinds = []
            async for event in await s.openai.responses.create(**RESPONSE, stream=True):
                kinds.append(event.type)
                if event.type == "response.output_text.delta":
                    text += event.delta
            assert text == whole.output_text
            assert kinds[0] == "response.created"
            assert kinds[-1] in ("response.completed", "response.incomplete")
            assert {outcome.ending for outcome in await s.outcomes(2)} == {Ending.COMPLETED}

    run(body())


def test_messages(engine):
    async def body():
        async with scene(engine) as s:
            whole = await s.anthropic.messages.create(**MESSAGE)
            assert whole.content[0].text == (await s.direct.anthropic.messages.create(**MESSAGE)).content[0].text
            assert whole.stop_reason == "max_tokens"
            assert whole.usage.output_tokens == 16
            async with s.anthropic.messages.stream(**MESSAGE) as stream:
                pieces = [piece async for piece in stream.text_stream]
                final = await stream.get_final_message()
            assert "".join(pieces) == whole.content[0].text
            assert (final.stop_reason, final.usage.output_tokens) == ("max_tokens", 16)
            assert {outcome.ending for outcome in await s.outcomes(2)} == {Ending.COMPLETED}

    run(body())


def test_count_tokens(engine):
    async def body():
        async with scene(engine) as s:
            asked = {"model": "tiny", "messages": HELLO}
            counted = await s.anthropic.messages.count_tokens(**asked)
            used = (await s.anthropic.messages.create(**MESSAGE)).usage.input_tokens
            assert counted.input_tokens == used > 0

    run(body())


def test_tokenize_and_back(engine):
    async def body():
        async with scene(engine) as s:
            text = "The river runs through größe."
            tokens = (await s.front.post("/tokenize", {"model": "tiny", "prompt": text})).json()
            assert tokens["count"] == len(tokens["tokens"]) > 3
            back = await s.front.post("/detokenize", {"model": "tiny", "tokens": tokens["tokens"]})
            assert back.json()["prompt"] == text

    run(body())
