"""The official SDKs take the sim for the real thing, streaming and not."""

import asyncio
import json
from typing import Any

import anthropic
import openai
import pytest
from fakes import run, until
from sim_client import HELLO, running
from tailrace.worker.sim import Fault

MESSAGES: Any = HELLO["messages"]
TOOL: Any = {
    "name": "get_weather",
    "schema": {"type": "object", "properties": {"city": {"type": "string", "enum": ["Paris", "Rome"]}}},
}


def openai_client(sim: Any, **more: Any) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{sim.url}/v1", api_key="key", max_retries=0, **more)


def anthropic_client(sim: Any) -> anthropic.AsyncAnthropic:
    # vLLM wants a bearer token; the SDK sends one where it is given as auth_token.
    return anthropic.AsyncAnthropic(base_url=sim.url, auth_token="key", api_key=None, max_retries=0)


def test_openai_chat() -> None:
    async def ask() -> None:
        async with running(api_keys=("key",)) as sim, openai_client(sim) as client:
            asked: Any = {"model": "tiny", "messages": MESSAGES, "max_tokens": 12, "temperature": 0}
            whole = await client.chat.completions.create(**asked)
            stream = await client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True})
            chunks = [chunk async for chunk in stream]
            said = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
            assert said == whole.choices[0].message.content
            assert chunks[-1].usage is not None
            assert whole.usage is not None
            assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens == 12
            assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "length"

    run(ask())


def test_openai_completions_models_and_embeddings() -> None:
    async def ask() -> None:
        async with running() as sim, openai_client(sim) as client:
            asked: Any = {"model": "tiny", "prompt": ["one", "two"], "max_tokens": 5, "temperature": 0}
            whole = await client.completions.create(**asked)
            texts = ["", ""]
            async for chunk in await client.completions.create(**asked, stream=True):
                texts[chunk.choices[0].index] += chunk.choices[0].text
            assert texts == [choice.text for choice in whole.choices]
            assert [model.id async for model in client.models.list()] == ["tiny"]
            vectors = await client.embeddings.create(model="tiny", input=["a river", "a mill"])
            assert [len(one.embedding) for one in vectors.data] == [384, 384]
            floats = await client.embeddings.create(model="tiny", input="a river", encoding_format="float")
            # The SDK asks for base64 by itself, which carries single precision.
            assert vectors.data[0].embedding == pytest.approx(floats.data[0].embedding, abs=1e-7)

    run(ask())


def test_openai_tools() -> None:
    async def ask() -> None:
        async with running() as sim, openai_client(sim) as client:
            tool = {"type": "function", "function": {"name": TOOL["name"], "parameters": TOOL["schema"]}}
            asked: Any = {"model": "tiny", "messages": MESSAGES, "tools": [tool], "temperature": 0}
            for choice, reason in (
                ("required", "tool_calls"),
                ({"type": "function", "function": {"name": TOOL["name"]}}, "stop"),
            ):
                whole = await client.chat.completions.create(**asked, tool_choice=choice)
                call: Any = (whole.choices[0].message.tool_calls or [])[0]
                async with client.chat.completions.stream(**asked, tool_choice=choice) as stream:
                    final = await stream.get_final_completion()
                streamed: Any = (final.choices[0].message.tool_calls or [])[0]
                assert whole.choices[0].finish_reason == final.choices[0].finish_reason == reason
                assert call.function.name == streamed.function.name == "get_weather"
                assert call.function.arguments == streamed.function.arguments
                assert json.loads(call.function.arguments)["city"] in ("Paris", "Rome")

    run(ask())


def test_openai_responses() -> None:
    async def ask() -> None:
        async with running() as sim, openai_client(sim) as client:
            asked: Any = {"model": "tiny", "input": "hello", "max_output_tokens": 9, "temperature": 0}
            whole = await client.responses.create(**asked, instructions="Be brief.")
            events = [event async for event in await client.responses.create(**asked, stream=True)]
            assert whole.status == "incomplete"
            assert whole.usage is not None
            assert whole.usage.output_tokens == 9
            deltas = "".join(event.delta for event in events if event.type == "response.output_text.delta")
            last: Any = events[-1]
            assert last.type == "response.completed"
            assert deltas == last.response.output_text
            assert [event.sequence_number for event in events] == list(range(len(events)))
            turns: Any = [{"role": "user", "content": [{"type": "input_text", "text": "hello"}]}]
            same = await client.responses.create(**asked | {"input": turns})
            assert same.output_text == deltas
            assert await client.responses.retrieve(whole.id) == whole
            assert await client.responses.retrieve(last.response.id) == last.response
            with pytest.raises(openai.BadRequestError, match="Cannot cancel a synchronous response"):
                await client.responses.cancel(whole.id)
            unkept = await client.responses.create(**asked, store=False)
            with pytest.raises(openai.NotFoundError, match=f"Response with id '{unkept.id}' not found") as lost:
                await client.responses.retrieve(unkept.id)
            assert lost.value.param == "response_id"

    run(ask())


def test_openai_audio() -> None:
    async def ask() -> None:
        async with running() as sim, openai_client(sim) as client:
            sound = ("a.wav", b"RIFF" + bytes(range(256)) * 300, "audio/wav")
            first = await client.audio.transcriptions.create(model="tiny", file=sound)
            again = await client.audio.transcriptions.create(model="tiny", file=sound, response_format="text")
            other = await client.audio.transcriptions.create(model="tiny", file=("b.wav", b"RIFFother", "audio/wav"))
            with pytest.warns(DeprecationWarning):
                english = await client.audio.translations.create(model="tiny", file=sound)
            assert first.text
            assert str(again) == first.text
            assert len({first.text, other.text, english.text}) == 3

    run(ask())


def test_openai_errors_are_of_their_classes() -> None:
    async def ask() -> None:
        async with running(api_keys=("key",)) as sim, openai_client(sim) as client:
            asked: Any = {"model": "tiny", "messages": MESSAGES, "max_tokens": 5}
            with pytest.raises(openai.NotFoundError, match="does not exist"):
                await client.chat.completions.create(**asked | {"model": "nope"})
            with pytest.raises(openai.BadRequestError):
                await client.chat.completions.create(**asked | {"max_tokens": 0})
            with pytest.raises(openai.AuthenticationError):
                await client.with_options(api_key="wrong").chat.completions.create(**asked)
            sim.fail(Fault(fail="rate_limited", count=1))
            with pytest.raises(openai.RateLimitError):
                await client.chat.completions.create(**asked)
            sim.fail(Fault(fail="engine_killed", after_tokens=2))
            with pytest.raises(openai.APIError, match="EngineCore"):
                async for _ in await client.chat.completions.create(**asked, stream=True):
                    pass

    run(ask())


def test_openai_client_that_stops_reading_frees_the_engine() -> None:
    async def ask() -> None:
        async with running(itl_ms=2) as sim, openai_client(sim) as client:
            asked: Any = {"model": "tiny", "messages": MESSAGES, "max_tokens": 2000}
            stream = await client.chat.completions.create(**asked, stream=True)
            await anext(aiter(stream))
            await stream.close()
            await until(lambda: sim.scheduler.running == 0)
            task = asyncio.create_task(client.chat.completions.create(**asked))
            await until(lambda: sim.scheduler.running == 1)
            task.cancel()
            await until(lambda: sim.scheduler.running == 0)

    run(ask())


def test_anthropic_messages() -> None:
    async def ask() -> None:
        async with running(api_keys=("key",)) as sim, anthropic_client(sim) as client:
            asked: Any = {"model": "tiny", "messages": MESSAGES, "max_tokens": 12, "system": "Brief."}
            asked["extra_body"] = {"temperature": 0}
            whole: Any = await client.messages.create(**asked)
            async with client.messages.stream(**asked) as stream:
                said = "".join([text async for text in stream.text_stream])
                final = await stream.get_final_message()
            assert said == whole.content[0].text
            assert whole.stop_reason == final.stop_reason == "max_tokens"
            assert whole.usage.output_tokens == final.usage.output_tokens == 12
            counted = await client.messages.count_tokens(model="tiny", messages=MESSAGES, system="Brief.")
            assert counted.input_tokens == whole.usage.input_tokens

    run(ask())


def test_anthropic_tools() -> None:
    async def ask() -> None:
        async with running() as sim, anthropic_client(sim) as client:
            tool = {"name": TOOL["name"], "input_schema": TOOL["schema"]}
            asked: Any = {"model": "tiny", "messages": MESSAGES, "max_tokens": 99, "tools": [tool]}
            asked["tool_choice"] = {"type": "any"}
            whole: Any = await client.messages.create(**asked)
            async with client.messages.stream(**asked) as stream:
                final: Any = await stream.get_final_message()
            assert whole.stop_reason == final.stop_reason == "tool_use"
            assert whole.content[0].input == final.content[0].input
            assert final.content[0].name == "get_weather"
            call = {"role": "assistant", "content": [whole.content[0].model_dump()]}
            result = {"type": "tool_result", "tool_use_id": whole.content[0].id, "content": "sunny"}
            turns = [*MESSAGES, call, {"role": "user", "content": [result]}]
            after: Any = await client.messages.create(model="tiny", messages=turns, max_tokens=5)
            assert after.content[0].type == "text"

    run(ask())


def test_anthropic_errors_are_of_their_classes() -> None:
    async def ask() -> None:
        async with running() as sim, anthropic_client(sim) as client:
            asked: Any = {"model": "tiny", "messages": MESSAGES, "max_tokens": 9}
            with pytest.raises(anthropic.NotFoundError):
                await client.messages.create(**asked | {"model": "nope"})
            sim.fail(Fault(fail="queue_full", count=1))
            with pytest.raises(anthropic.APIStatusError, match="currently busy"):
                await client.messages.create(**asked)
            sim.fail(Fault(fail="engine_killed", after_tokens=2))
            with pytest.raises(anthropic.APIError, match="internal_error"):
                async with client.messages.stream(**asked) as stream:
                    await stream.get_final_message()

    run(ask())
