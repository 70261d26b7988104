"""What the model says hangs on what was said, and on nothing else."""

from typing import Any

import pytest
from fakes import run
from hypothesis import given
from hypothesis import strategies as st
from sim_client import CHAT, COMPLETIONS, HELLO, fetch, running, texts
from tailrace.worker.sim import Adapter
from tailrace.worker.sim.tokenizer import EOS, ID_OF, IM_START, VOCAB_SIZE, decode, encode
from tailrace.worker.sim.words import BROKEN

prompts = st.lists(st.integers(5, VOCAB_SIZE - 1), min_size=1, max_size=20)


async def resumed(sim: Any, body: dict[str, Any], cut: int) -> tuple[Any, Any]:
    """A whole answer, and what comes when it is resumed from its first `cut` tokens."""
    path = CHAT if "messages" in body else COMPLETIONS
    whole = (await fetch(sim, path, body | {"return_token_ids": True})).json
    choice = whole["choices"][0]
    ids = whole.get("prompt_token_ids") or choice["prompt_token_ids"]
    left = body["max_tokens"] - cut
    more = {"prompt": ids + choice["token_ids"][:cut], "max_tokens": left, "return_token_ids": True}
    more |= {name: body[name] for name in ("temperature", "seed") if name in body}
    return choice, (await fetch(sim, COMPLETIONS, more)).json["choices"][0]


@pytest.mark.parametrize("cut", [1, 2, 7, 23, 39])
def test_greedy_answer_resumed_from_ids_goes_on_the_same_on_another_replica(cut: int) -> None:
    async def ask() -> None:
        async with running(seed=1) as one, running(seed=2) as other:
            body = HELLO | {"max_tokens": 40}
            whole, _ = await resumed(one, body, cut)
            _, rest = await resumed(other, body, cut)
            assert whole["token_ids"][cut:] == rest["token_ids"]
            assert whole["message"]["content"].endswith(rest["text"])
            assert rest["finish_reason"] == "length"

    run(ask())


def test_seed_starts_anew_where_an_answer_is_resumed() -> None:
    async def ask() -> None:
        async with running() as sim:
            body = HELLO | {"max_tokens": 40, "temperature": 0.7, "seed": 5}
            whole, rest = await resumed(sim, body, 7)
            again, _ = await resumed(sim, body, 7)
            assert again["token_ids"] == whole["token_ids"]
            assert rest["token_ids"] != whole["token_ids"][7:]

    run(ask())


@given(prompts, st.integers(1, 19))
def test_any_prompt_can_be_resumed_anywhere(prompt: list[int], cut: int) -> None:
    async def ask() -> None:
        async with running() as sim:
            body = {"prompt": prompt, "max_tokens": 20, "temperature": 0}
            whole, rest = await resumed(sim, body, cut)
            assert whole["token_ids"][cut:] == rest["token_ids"]

    run(ask())


def test_cut_inside_a_character_loses_nothing() -> None:
    async def ask() -> None:
        async with running() as sim:
            body = {"prompt": [ID_OF[BROKEN]], "max_tokens": 4, "temperature": 0}
            answer = (await fetch(sim, COMPLETIONS, body)).json
            # The first token ends the emoticon that the prompt began; as in vLLM the prompt is told with it.
            assert answer["choices"][0]["text"][0] == " "
            assert 0x1F600 <= ord(answer["choices"][0]["text"][1]) < 0x1F640
            streamed = await fetch(sim, COMPLETIONS, body | {"stream": True})
            assert streamed.text == answer["choices"][0]["text"]

    run(ask())


def test_natural_end_comes_at_the_same_token_when_resumed() -> None:
    async def ask() -> None:
        async with running(answer_tokens=16) as sim:
            body = HELLO | {"max_tokens": 500}
            whole = (await fetch(sim, CHAT, body | {"return_token_ids": True})).json["choices"][0]
            said = len(whole["token_ids"])
            assert whole["finish_reason"] == "stop"
            assert whole["token_ids"][-1] == EOS
            assert 8 <= said <= 25
            for cut in (1, said - 1):
                _, rest = await resumed(sim, body, cut)
                assert rest["token_ids"] == whole["token_ids"][cut:]
                assert rest["finish_reason"] == "stop"
            endless = (await fetch(sim, CHAT, body | {"ignore_eos": True})).json
            assert endless["usage"]["completion_tokens"] == 500

    run(ask())


def test_short_limits_are_always_reached() -> None:
    async def ask() -> None:
        async with running() as sim:
            for word in ("a", "b", "c", "d", "e"):
                body = {"messages": [{"role": "user", "content": word}], "max_tokens": 60}
                assert (await fetch(sim, CHAT, body)).json["usage"]["completion_tokens"] == 60

    run(ask())


def test_sampling_varies_only_when_it_may() -> None:
    async def said(sim: Any, **sampling: object) -> str:
        body = {"prompt": "the water", "max_tokens": 12} | sampling
        return str((await fetch(sim, COMPLETIONS, body)).json["choices"][0]["text"])

    async def ask() -> None:
        async with running() as sim:
            assert await said(sim, temperature=0) == await said(sim, temperature=0)
            assert await said(sim, temperature=0) == await said(sim, temperature=0, seed=7)
            assert await said(sim, seed=7) == await said(sim, seed=7)
            assert await said(sim, seed=7) != await said(sim, seed=8)
            assert await said(sim) != await said(sim)

    run(ask())


def test_models_and_adapters_say_different_things() -> None:
    async def ask() -> None:
        async with running(lora_modules=(Adapter(name="law", path="/law"),)) as sim:
            texts = {
                (await fetch(sim, CHAT, HELLO | {"model": name, "max_tokens": 9})).json["choices"][0]["message"][
                    "content"
                ]
                for name in ("tiny", "law")
            }
            assert len(texts) == 2

    run(ask())


def test_mixed_text_has_characters_of_every_kind() -> None:
    async def ask() -> None:
        async with running(text="mixed") as one, running(text="mixed", seed=2) as other:
            body = {"prompt": "the mill", "max_tokens": 400, "temperature": 0, "return_token_ids": True}
            whole = (await fetch(one, COMPLETIONS, body)).json["choices"][0]
            text, ids = whole["text"], whole["token_ids"]
            assert {len(character.encode()) for character in text} == {1, 2, 3, 4}
            assert any(character in text for character in "水大€")
            assert any(character in text for character in "🌊🌍🌙")
            assert "\ufffd" in text
            assert any(character in text for character in "東京你好한강")
            streamed = await fetch(one, COMPLETIONS, body | {"stream": True})
            assert streamed.text == text == decode(ids)
            # Cut where a character is not whole, and gone on with from the ids on another replica.
            silent = [n for n, piece in enumerate(texts(streamed)[:-1], 1) if not piece]
            assert len(silent) > 40
            cut = silent[7]
            more = {"prompt": encode("the mill") + ids[:cut], "max_tokens": 400 - cut}
            rest = (await fetch(other, COMPLETIONS, body | more)).json["choices"][0]
            assert rest["token_ids"] == ids[cut:]
            assert rest["text"] == "the mill" + text

    run(ask())


def test_prompts_of_all_four_kinds() -> None:
    async def ask() -> None:
        async with running() as sim:
            ids = (await fetch(sim, "/tokenize", {"prompt": "the river"})).json["tokens"]
            one = {"max_tokens": 5, "temperature": 0}
            texts = []
            for prompt in ("the river", ids, ["the river"], [ids], ["the river", "the mill"], [ids, [IM_START]]):
                answer = (await fetch(sim, COMPLETIONS, one | {"prompt": prompt})).json
                texts.append(answer["choices"][0]["text"])
                assert [c["index"] for c in answer["choices"]] == list(range(len(answer["choices"])))
            assert len(set(texts)) == 1

    run(ask())


def test_streamed_ids_are_those_of_the_whole_answer() -> None:
    async def ask() -> None:
        async with running() as sim:
            for path, prompt in ((CHAT, HELLO), (COMPLETIONS, {"prompt": "the mill", "temperature": 0})):
                body = prompt | {"max_tokens": 9, "return_token_ids": True}
                whole = (await fetch(sim, path, body)).json
                events = (await fetch(sim, path, body | {"stream": True})).events[:-1]
                choices = [event["choices"][0] for event in events]
                ids = [token for choice in choices for token in choice.get("token_ids") or []]
                assert ids == whole["choices"][0]["token_ids"]
                # The prompt's ids come once, with the first chunk.
                prompts = [one.get("prompt_token_ids") for one in (events if path == CHAT else choices)]
                expected = whole["prompt_token_ids"] if path == CHAT else whole["choices"][0]["prompt_token_ids"]
                assert prompts == [expected] + [None] * (len(prompts) - 1)

    run(ask())


def test_usage_counts_a_prompt_once_however_many_choices() -> None:
    async def ask() -> None:
        async with running() as sim:
            one = HELLO | {"temperature": 1, "max_tokens": 4}
            single = (await fetch(sim, CHAT, one)).json["usage"]
            for more in ({}, {"stream": True, "stream_options": {"include_usage": True}}):
                answer = await fetch(sim, CHAT, one | {"n": 3} | more)
                usage = answer.events[-2]["usage"] if more else answer.json["usage"]
                assert usage["prompt_tokens"] == single["prompt_tokens"]
                assert usage["completion_tokens"] == 3 * single["completion_tokens"] == 12
                assert usage["total_tokens"] == usage["prompt_tokens"] + 12

    run(ask())


def test_continuous_usage_counts_along() -> None:
    async def ask() -> None:
        async with running() as sim:
            options = {"stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}
            for path, prompt, opening in ((CHAT, HELLO, [0]), (COMPLETIONS, {"prompt": "the mill"}, [])):
                events = (await fetch(sim, path, prompt | {"max_tokens": 5} | options)).events[:-1]
                counts = [event["usage"]["completion_tokens"] for event in events]
                assert counts == [*opening, 1, 2, 3, 4, 5, 5]

    run(ask())


def test_probabilities_of_completions_line_up_with_the_text() -> None:
    async def ask() -> None:
        async with running() as sim:
            body = {"prompt": "the mill", "max_tokens": 6, "temperature": 0, "logprobs": 2}
            whole = (await fetch(sim, COMPLETIONS, body)).json["choices"][0]
            told = whole["logprobs"]
            assert list(told) == ["text_offset", "token_logprobs", "tokens", "top_logprobs"]
            for at, token in zip(told["text_offset"], told["tokens"], strict=True):
                assert whole["text"][at:].startswith(token)
            assert [len(top) for top in told["top_logprobs"]] == [2] * 6
            events = (await fetch(sim, COMPLETIONS, body | {"stream": True})).events[:-1]
            streamed = [event["choices"][0]["logprobs"] for event in events]
            for name in told:
                assert [one[name][0] for one in streamed] == told[name]

    run(ask())
