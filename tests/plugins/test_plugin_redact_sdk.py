"""The official SDKs read redacted streams: what they put together is what a whole answer would say."""

from __future__ import annotations

import anthropic
import openai
from fakes import run
from redact_streams import ARGUMENTS, HIDDEN, SAFE, SECRET, chat, chat_event, messages, responses
from tailrace.plugins.redact import Redact
from tailrace.proxy.testing import plugin_bench

PIECES = [SECRET[at : at + 7] for at in range(0, len(SECRET), 7)]


def test_chat():
    async def main():
        async with (
            plugin_bench(Redact, answer=chat(PIECES), feed="split") as bench,
            openai.AsyncOpenAI(base_url=bench.url + "/v1", api_key="x", max_retries=0) as client,
            client.chat.completions.stream(model="m", messages=[]) as stream,
        ):
            final = await stream.get_final_completion()
            assert final.choices[0].message.content == HIDDEN

    run(main())


def test_chat_with_tools():
    call = {"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": ""}}
    pieces = [chat_event({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}) for piece in ARGUMENTS]
    first = chat_event({"role": "assistant", "tool_calls": [call]})
    stream = [first, *pieces, chat_event({}, finish="tool_calls"), b"data: [DONE]\n\n"]

    async def main():
        async with (
            plugin_bench(Redact, answer=stream) as bench,
            openai.AsyncOpenAI(base_url=bench.url + "/v1", api_key="x", max_retries=0) as client,
            client.chat.completions.stream(model="m", messages=[]) as answer,
        ):
            final = await answer.get_final_completion()
            assert final.choices[0].message.tool_calls[0].function.arguments == SAFE

    run(main())


def test_responses():
    async def main():
        async with (
            plugin_bench(Redact, answer=responses(PIECES), feed="bytes") as bench,
            openai.AsyncOpenAI(base_url=bench.url + "/v1", api_key="x", max_retries=0) as client,
            client.responses.stream(model="m", input="x") as stream,
        ):
            shown = "".join([event.delta async for event in stream if event.type == "response.output_text.delta"])
            final = await stream.get_final_response()
            assert (shown, final.output_text) == (HIDDEN, HIDDEN)

    run(main())


def test_messages():
    async def main():
        async with (
            plugin_bench(Redact, answer=messages(PIECES), feed="joined") as bench,
            anthropic.AsyncAnthropic(base_url=bench.url, api_key="x", max_retries=0) as client,
            client.messages.stream(model="m", max_tokens=9, messages=[{"role": "user", "content": "x"}]) as stream,
        ):
            assert await stream.get_final_text() == HIDDEN

    run(main())
