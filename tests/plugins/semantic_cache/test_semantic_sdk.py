"""The official SDKs take an answer that other words got, as a stream and whole."""

from __future__ import annotations

import anthropic
import openai
from fakes import run
from remembering import asking

FIRST = "How do I reset my password?"
AGAIN = [{"role": "user", "content": "Please tell me how I can reset my password"}]


def test_openai():
    async def body():
        async with asking() as asks:
            await asks.ask(FIRST)
            async with openai.AsyncOpenAI(base_url=f"{asks.bench.url}/v1", api_key="k", max_retries=0) as client:
                whole = await client.chat.completions.create(model="m", messages=AGAIN)
                assert whole.choices[0].message.content == "answer 1"
                stream = await client.chat.completions.create(
                    model="m", messages=AGAIN, stream=True, stream_options={"include_usage": True}
                )
                chunks = [chunk async for chunk in stream]
            said = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
            assert "".join(said) == "answer 1"
            assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"
            assert chunks[-1].usage.completion_tokens == 3
            assert asks.asked == 1

    run(body())


def test_anthropic():
    async def body():
        async with asking() as asks:
            await asks.ask(FIRST, path="/v1/messages", max_tokens=100)
            async with anthropic.AsyncAnthropic(base_url=asks.bench.url, api_key="k", max_retries=0) as client:
                whole = await client.messages.create(model="m", messages=AGAIN, max_tokens=100)
                assert whole.content[0].text == "answer 1"
                async with client.messages.stream(model="m", messages=AGAIN, max_tokens=100) as stream:
                    assert [text async for text in stream.text_stream] == ["answer 1"]
                    told = await stream.get_final_message()
            assert (told.stop_reason, told.usage.output_tokens) == ("end_turn", 3)
            assert asks.asked == 1

    run(body())
