"""A plain text as a model's answer: read by the official SDKs, whole and as a stream."""

from __future__ import annotations

import anthropic
import openai
import orjson
import pytest
from fakes import Upstream, gateway, json_answer, run, yaml_for

DOWN = json_answer({"error": {"message": "broken"}}, 500)
SORRY = "Sorry: this model is away."
ASK = [{"role": "user", "content": "hi"}]


def degraded(test):
    """A gateway whose only worker fails and that says so in words; the test gets its URL."""

    async def body():
        async with Upstream(DOWN) as upstream:
            plugins = f"[{{fallback: {{to: [{{message: '{SORRY}'}}]}}}}]"
            async with gateway(yaml_for(upstream, plugins=plugins)) as process:
                await test(process.doors[0].shown)

    run(body())


@pytest.mark.parametrize("stream", [False, True])
def test_chat(stream):
    async def test(url):
        async with openai.AsyncOpenAI(api_key="k", base_url=f"{url}/v1", max_retries=0) as client:
            said = await client.chat.completions.create(model="m", messages=ASK, stream=stream)
            if stream:
                chunks = [chunk async for chunk in said]
                assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == SORRY
                assert chunks[-1].choices[0].finish_reason == "stop"
            else:
                assert said.choices[0].message.content == SORRY
                assert said.usage.total_tokens == 0

    degraded(test)


@pytest.mark.parametrize("stream", [False, True])
def test_completions(stream):
    async def test(url):
        async with openai.AsyncOpenAI(api_key="k", base_url=f"{url}/v1", max_retries=0) as client:
            said = await client.completions.create(model="m", prompt="hi", stream=stream)
            texts = [chunk.choices[0].text async for chunk in said] if stream else [said.choices[0].text]
            assert "".join(texts) == SORRY

    degraded(test)


@pytest.mark.parametrize("stream", [False, True])
def test_responses(stream):
    async def test(url):
        async with openai.AsyncOpenAI(api_key="k", base_url=f"{url}/v1", max_retries=0) as client:
            said = await client.responses.create(model="m", input="hi", stream=stream)
            if stream:
                events = [event async for event in said]
                assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == SORRY
                said = events[-1].response
            assert said.output_text == SORRY
            assert said.status == "completed"

    degraded(test)


@pytest.mark.parametrize("stream", [False, True])
def test_messages(stream):
    async def test(url):
        async with anthropic.AsyncAnthropic(api_key="k", base_url=url, max_retries=0) as client:
            if stream:
                async with client.messages.stream(model="m", max_tokens=9, messages=ASK) as events:
                    said = await events.get_final_message()
            else:
                said = await client.messages.create(model="m", max_tokens=9, messages=ASK)
            assert said.content[0].text == SORRY
            assert said.stop_reason == "end_turn"

    degraded(test)


def test_what_is_no_text_gets_the_error():
    async def test(url):
        async with openai.AsyncOpenAI(api_key="k", base_url=f"{url}/v1", max_retries=0) as client:
            with pytest.raises(openai.InternalServerError):
                await client.embeddings.create(model="m", input="hi")

    degraded(test)


def test_a_stream_that_has_begun_with_a_heartbeat():
    async def silent(conn, request):
        await conn.wait_closed()

    async def body():
        async with Upstream(silent) as upstream:
            plugins = f"[{{fallback: {{to: [{{message: '{SORRY}'}}]}}}}]"
            more = "heartbeat: 0.1\ntimeouts: {first_content_base: 0.4}"
            async with gateway(yaml_for(upstream, plugins=plugins, more=more)) as process:
                async with openai.AsyncOpenAI(
                    api_key="k", base_url=f"{process.doors[0].shown}/v1", max_retries=0
                ) as client:
                    said = await client.chat.completions.create(model="m", messages=ASK, stream=True)
                    chunks = [chunk async for chunk in said]
                    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == SORRY

    run(body())


def test_it_is_valid_json_whatever_the_text_is():
    from types import SimpleNamespace

    from tailrace.proxy.spoken import spoken

    text = 'a "quote"\n\x00 \u2028 data: [DONE]'
    call = SimpleNamespace(route=SimpleNamespace(name="chat", pinned=False), id="1", model="m", stream=False)
    reply = spoken(call, text)
    assert orjson.loads(reply.body)["choices"][0]["message"]["content"] == text
