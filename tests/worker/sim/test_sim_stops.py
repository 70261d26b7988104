"""What ends an answer before its length, and what is held back until that is known."""

import pytest
from fakes import run
from sim_client import CHAT, COMPLETIONS, HELLO, fetch, running, texts
from tailrace.worker.sim.stops import StopStrings
from tailrace.worker.sim.tokenizer import EOS, decode


@pytest.mark.parametrize("stop", ["e", ["er", "th"], " a", ", "])
def test_stop_strings_are_never_shown(stop: str | list[str]) -> None:
    async def ask() -> None:
        async with running() as sim:
            body = HELLO | {"max_tokens": 60, "stop": stop}
            unary = (await fetch(sim, CHAT, body)).json["choices"][0]
            streamed = await fetch(sim, CHAT, body | {"stream": True})
            stops = [stop] if isinstance(stop, str) else stop
            assert unary["stop_reason"] in stops
            assert not any(one in unary["message"]["content"] for one in stops)
            assert streamed.text == unary["message"]["content"]
            free = (await fetch(sim, CHAT, HELLO | {"max_tokens": 60})).json["choices"][0]["message"]["content"]
            assert free.startswith(unary["message"]["content"] + unary["stop_reason"])
            shown = (await fetch(sim, CHAT, body | {"include_stop_str_in_output": True})).json["choices"][0]
            assert shown["message"]["content"] == unary["message"]["content"] + unary["stop_reason"]

    run(ask())


def test_text_held_back_for_a_stop_string_comes_out_in_the_end() -> None:
    async def ask() -> None:
        async with running() as sim:
            body = HELLO | {"max_tokens": 20}
            free = (await fetch(sim, CHAT, body)).json["choices"][0]["message"]["content"]
            never = await fetch(sim, CHAT, body | {"stream": True, "stop": ["no such text"]})
            assert never.text == free

    run(ask())


def test_stop_token_ends_the_answer() -> None:
    async def ask() -> None:
        async with running() as sim:
            body = {"prompt": "a", "max_tokens": 8, "temperature": 0, "return_token_ids": True}
            free = (await fetch(sim, COMPLETIONS, body)).json["choices"][0]
            ids, stop = free["token_ids"], {"stop_token_ids": [free["token_ids"][4]]}
            stopped = (await fetch(sim, COMPLETIONS, body | stop)).json["choices"][0]
            assert (stopped["token_ids"], stopped["stop_reason"]) == (ids[:5], ids[4])
            assert stopped["text"] == decode(ids[:4])
            shown = body | stop | {"include_stop_str_in_output": True}
            assert (await fetch(sim, COMPLETIONS, shown)).json["choices"][0]["text"] == decode(ids[:5])
            # After `min_tokens` it may come; up to there another token takes its place, and nothing ends.
            least = (await fetch(sim, COMPLETIONS, body | stop | {"min_tokens": 4})).json["choices"][0]
            assert least["token_ids"] == ids[:5]
            longer = (await fetch(sim, COMPLETIONS, body | stop | {"min_tokens": 5})).json["choices"][0]
            assert longer["token_ids"][:4] == ids[:4]
            assert longer["token_ids"][4] not in (ids[4], EOS)
            assert (len(longer["token_ids"]), longer["finish_reason"]) == (8, "length")

    run(ask())


def test_text_that_may_become_a_stop_string_is_held_back() -> None:
    async def ask() -> None:
        async with running() as sim:
            body = {"prompt": "the mill", "max_tokens": 12, "temperature": 0, "stream": True}
            pieces = texts(await fetch(sim, COMPLETIONS, body))
            free = "".join(pieces)
            held = texts(await fetch(sim, COMPLETIONS, body | {"stop": ["no such text", "short"]}))
            # Eleven characters less than were said, at every token but the last.
            so_far = ["".join(pieces[: n + 1]) for n in range(12)]
            assert ["".join(held[: n + 1]) for n in range(11)] == [
                text[:-11] if len(text) > 11 else "" for text in so_far[:11]
            ]
            assert "".join(held) == free
            shown = texts(
                await fetch(sim, COMPLETIONS, body | {"stop": "no such text", "include_stop_str_in_output": True})
            )
            assert shown == pieces

    run(ask())


def test_of_two_stop_strings_the_one_that_ends_first_counts() -> None:
    stops = StopStrings(("cde", "bc"), include=False, least=0)
    assert stops.take("ab", 1) is None
    assert stops.take("cdef", 2) == "bc"
    assert stops.text == stops.show(ended=True) == "a"
    inner = StopStrings(("bcdef", "cd"), include=False, least=0)
    assert inner.take("abcdef", 1) == "cd"
    assert inner.text == "ab"


def test_stop_string_that_ends_within_the_least_length_is_passed_over() -> None:
    stops = StopStrings(("bc",), include=True, least=2)
    assert [stops.take(text, said) for said, text in enumerate(("ab", "c", "bcb"), 1)] == [None, None, "bc"]
    assert stops.text == "abcbc"
    late = StopStrings(("bcd",), include=False, least=2)
    assert [late.take(text, said) for said, text in enumerate(("ab", "c", "d"), 1)] == [None, None, "bcd"]
