"""How many choices a stream has to finish, from what was asked."""

from __future__ import annotations

import itertools
import json
import random

import orjson
import pytest
from fakes import RawClient, Upstream, event, gateway, run, sse_answer, yaml_for
from tailrace.proxy.answers import _prompts_in

TEXTS = ["", "a", '"', "\\", '\\"', '\\\\"', '","', '["', "]", "\n", "ü", "\u2028", "a, b", "\\\\\\", "[1,2]"]


def forms(prompts):
    """A list as different programs write it."""
    yield json.dumps(prompts).encode()
    yield json.dumps(prompts, separators=(",", ":"), ensure_ascii=False).encode()
    yield json.dumps(prompts, indent=2).encode()


@pytest.mark.parametrize("count", [1, 2, 3])
def test_texts_are_counted_whatever_is_in_them(count):
    for prompts in itertools.product(TEXTS, repeat=count):
        for form in forms(prompts):
            assert _prompts_in(form) == count


def test_any_text_counts_as_one():
    drawn = random.Random(1)
    for _ in range(2000):
        prompts = ["".join(drawn.choices('\\"[],a\n', k=drawn.randrange(9))) for _ in range(drawn.randrange(1, 6))]
        for form in forms(prompts):
            assert _prompts_in(form) == len(prompts)


@pytest.mark.parametrize("prompts", [[[]], [[1]], [[1, 2], [3]], [[], [], []], [[1]] * 1000])
def test_lists_of_tokens_are_counted(prompts):
    for form in forms(prompts):
        assert _prompts_in(form) == len(prompts)


def finish(index):
    return event({"id": "x", "choices": [{"index": index, "text": "a", "finish_reason": "stop"}]})


@pytest.mark.parametrize(
    ("prompt", "n", "choices"),
    [
        ("a", 1, 1),
        ([1, 2, 3], 1, 1),
        (["a", 'b","c'], 1, 2),
        (["a"], 3, 3),
        ([[1, 2], [3], [4]], 2, 6),
    ],
)
def test_a_stream_is_whole_with_the_last_of_them(prompt, n, choices):
    async def main():
        scripts = [sse_answer([finish(index) for index in range(count)]) for count in (choices, choices - 1 or 2)]
        async with Upstream(*scripts) as upstream, gateway(yaml_for(upstream)) as process:
            async with RawClient(process.doors[0].shown) as client:
                asked = {"model": "m", "stream": True, "n": n, "prompt": prompt}
                assert (await client.post("/v1/completions", asked)).complete
            async with RawClient(process.doors[0].shown) as client:
                assert (await client.post("/v1/completions", asked)).complete == (choices == 1)

    run(main())


@pytest.mark.interpreted
def test_no_list_of_prompts_is_decoded_to_be_counted(monkeypatch):
    """Millions of them would hold up every other call."""
    sizes, decode = [], orjson.loads

    def watched(text):
        sizes.append(len(text))
        return decode(text)

    monkeypatch.setattr(orjson, "loads", watched)

    async def main():
        async with Upstream(sse_answer([finish(0), finish(1)])) as upstream, gateway(yaml_for(upstream)) as process:
            async with RawClient(process.doors[0].shown) as client:
                asked = {"model": "m", "stream": True, "prompt": ["a" * 50_000, "b"]}
                assert (await client.post("/v1/completions", asked)).complete
        assert max(sizes) < 50_000

    run(main())
