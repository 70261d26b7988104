"""Streams that are cut at every token index: what the client reads is what an undisturbed stream says."""

from __future__ import annotations

from typing import Any

import pytest
from cutting import CHAT, TEXT, essence, rescuing, same
from fakes import run
from sidecars import simulated

PROMPTS = [
    "Say something about rivers.", "日本語で何か書いてください",
    "Emoji please 🎉👩‍👩‍👧🇩🇪", "naïve café, Ω≈ç√", "Ein Satz über Äpfel",
    "одно предложение", "عربي", "한국어 문장", "tabs\tand\nlines \"quoted\" \\ back", "1 + 1 =",
]  # fmt: skip
GREEDY: dict[str, Any] = {"model": "tiny", "temperature": 0, "max_tokens": 20}
ASKED: dict[str, dict[str, Any]] = {
    "plain": {},
    "usage": {"stream_options": {"include_usage": True}},
    "running usage": {"stream_options": {"include_usage": True, "continuous_usage_stats": True}},
    "ids": {"return_token_ids": True},
    "stop": {"stop": ["e", "salt garden"]},
    "stop that stays": {"stop": [" and", "salt g"], "include_stop_str_in_output": True},
    "long stop": {"stop": ["never to be found in any of these answers"]},
    "no bound": {"max_tokens": None},
}


def chat(prompt: str) -> dict[str, Any]:
    return {**GREEDY, "messages": [{"role": "user", "content": prompt}]}


async def every_cut(path: str, body: dict[str, Any], text: str = "mixed") -> int:
    """Cut a stream at every event; how many streams went on elsewhere."""
    rescued = 0
    own_end = 0 if body["max_tokens"] else 12  # where a request names no bound, the engine ends its answers
    async with (
        simulated(answer_tokens=own_end, text=text) as a,
        simulated(answer_tokens=own_end, text=text) as b,
        rescuing([a.url, b.url]) as scene,
    ):
        calm = essence((await scene.ask(path, body)).body)
        assert calm.done
        events = 200
        for index in range(events):
            before = scene.shears.cuts
            answer = await scene.ask(path, body, cut_after=index)
            if scene.shears.cuts == before:
                break  # the stream has no more events than that
            assert not (difference := same(calm, essence(answer.body))), f"cut after {index} events: {difference}"
            rescued += 1
        else:
            raise AssertionError("the stream does not end")
    return rescued


@pytest.mark.parametrize("prompt", PROMPTS)
def test_chat_is_cut_at_every_event(prompt: str) -> None:
    assert run(every_cut(CHAT, chat(prompt))) >= 22


@pytest.mark.parametrize("asked", ASKED)
def test_what_is_asked_besides_stays_right(asked: str) -> None:
    assert run(every_cut(CHAT, {**chat(PROMPTS[2]), **ASKED[asked]})) >= 2


@pytest.mark.parametrize("asked", ASKED)
def test_text_completions(asked: str) -> None:
    assert run(every_cut(TEXT, {**GREEDY, "prompt": PROMPTS[1], **ASKED[asked]})) >= 2


def test_prompts_of_tokens() -> None:
    assert run(every_cut(TEXT, {**GREEDY, "prompt": [5, 6, 7, 8, 900]})) >= 20
