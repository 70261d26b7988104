"""What is noted of a stream: the same whether its chunks are read as events or go the short way."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tailrace.proxy.dialects import CHAT, COMPLETIONS
from tailrace.proxy.harvest import Harvest
from tailrace.proxy.passage import TracedPassage
from tailrace.proxy.rescue import trail as module
from tailrace.proxy.rescue.trail import Trail
from tailrace.proxy.sse import Splitter
from tailrace.proxy.wire import frame, unframe

pytestmark = pytest.mark.interpreted
DIALECTS = {"chat": CHAT, "completions": COMPLETIONS}


def event_of(route: str, text: str | None, ids: list[int] | None, reason: str | None = None, **more: Any) -> bytes:
    """An event in vLLM's spelling."""
    choice: dict[str, Any] = {"index": 0}
    if route == "chat":
        choice["delta"] = {} if text is None else {"content": text}
    else:
        choice["text"] = text or ""
    choice |= {"logprobs": None, "finish_reason": reason}
    if reason is not None:
        choice["stop_reason"] = None
    choice |= {"token_ids": ids, **more}
    body = {"id": "c", "object": "o", "created": 1, "model": "m", "choices": [choice]}
    return b"data: " + orjson.dumps(body) + b"\n\n"


class Reader:
    """Reads as the relay does: whole chunks the short way where that is known, everything else as events."""

    def __init__(self, route: str, *, strips: bool, keeps_text: bool, short: bool) -> None:
        dialect = DIALECTS[route]
        call: Any = SimpleNamespace(route=SimpleNamespace(name=route, dialect=dialect), body=None, token_ids=None)
        self.harvest = Harvest(call)
        self.trail = self.harvest.trail = Trail(dialect.mark, keeps_text=keeps_text, patience=5.0)
        self.trail.prompt = 9
        if strips:
            self.trail.strip()
        self._passage = TracedPassage(dialect, self.harvest, self.trail) if short else None
        self._splitter = Splitter()
        self.out = b""
        self.passed = 0

    def read(self, chunks: list[bytes]) -> None:
        framed = b"".join([frame(chunk) for chunk in chunks])
        if self._passage is not None and not self._splitter.rest:
            passed = self._passage.passed(framed, len(chunks))
            if passed is not None:
                self.passed += 1
                self.out += unframe(passed)
                return
        for event in self._splitter.feed(unframe(framed)):
            self.out += b"".join([kept.raw for kept in self.harvest.feed(event)])

    @property
    def noted(self) -> tuple[Any, ...]:
        trail, usage = self.trail, self.harvest.usage()
        figures = None if usage is None else (usage.prompt, usage.completion, usage.estimated)
        return list(trail.ids), trail.clean, bytes(trail.text), trail.coarse, trail.finished, trail.obstacle, figures


TOKEN = st.tuples(
    st.sampled_from(
        ["", "a", " river", 'say "x"', '"', "\\", "\n", "水", "\u00e9", "🎉", "finish_reason", "]", "[DONE]"]
    ),
    st.lists(st.integers(0, 200_000), max_size=3),
)


@given(
    tokens=st.lists(TOKEN, min_size=1, max_size=25),
    cuts=st.lists(st.integers(1, 4), max_size=25),
    halves=st.lists(st.floats(0.01, 0.99), max_size=6),
    route=st.sampled_from(["chat", "completions"]),
    strips=st.booleans(),
    keeps_text=st.booleans(),
    ends=st.booleans(),
)
def test_both_ways_note_the_same(
    tokens: list[tuple[str, list[int]]],
    cuts: list[int],
    halves: list[float],
    route: str,
    strips: bool,
    keeps_text: bool,
    ends: bool,
) -> None:
    events = [event_of(route, text, ids) for text, ids in tokens]
    if ends:
        events.append(event_of(route, "z", [7], "length"))
    long, short = [Reader(route, strips=strips, keeps_text=keeps_text, short=short) for short in (False, True)]
    for event in events:
        long.read([event])
    # The same in other reads: several chunks in one, or a chunk with half an event.
    pieces: list[list[bytes]] = []
    at = 0
    for count in [*cuts, len(events)]:
        if events[at : at + count]:
            pieces.append(events[at : at + count])
            at += count
    for half in halves:
        place = int(half * len(pieces))
        chunks = pieces[place]
        cut = 1 + int(half * (len(chunks[0]) - 1))
        if len(chunks) == 1 and cut < len(chunks[0]):
            pieces[place : place + 1] = [[chunks[0][:cut]], [chunks[0][cut:]]]
    for chunks in pieces:
        short.read(chunks)
    assert short.noted == long.noted
    assert short.out == long.out
    assert (b'token_ids":[' in long.out) is (not strips)
    ids = [number for _, numbers in tokens for number in numbers] + [7] * ends
    assert long.noted[0] == ids


@given(texts=st.lists(st.text(max_size=8), min_size=1, max_size=12))
def test_the_text_is_that_which_was_shown(texts: list[str]) -> None:
    reader = Reader("chat", strips=True, keeps_text=True, short=True)
    for number, text in enumerate(texts):
        reader.read([event_of("chat", text, [number])])
    assert orjson.loads(b'"' + bytes(reader.trail.text) + b'"') == "".join(texts)
    shown = [number for number, text in enumerate(texts) if text]
    assert reader.trail.clean == (shown[-1] + 1 if shown else 0)


def test_the_usual_token_goes_the_short_way() -> None:
    reader = Reader("chat", strips=True, keeps_text=False, short=True)
    for number in range(20):
        reader.read([event_of("chat", f"t{number}", [number])])
        reader.read([event_of("chat", "", [number]), event_of("chat", "x", [number, 5])])
    assert reader.passed == 40 - 1


def test_an_engine_that_gives_no_ids_is_counted_by_its_pieces() -> None:
    reader = Reader("chat", strips=True, keeps_text=False, short=True)
    for number in range(5):
        reader.read([event_of("chat", f"t{number}", None)])
        reader.read([event_of("chat", "a", None), event_of("chat", "b", None)])
    usage = reader.harvest.usage()
    assert usage is not None
    assert (usage.completion, usage.estimated) == (15, True)
    assert not reader.trail.sample
    # Once that is known, its events are read no more.
    assert reader.passed == 9


def trail_of(*, strips: bool = True, keeps_text: bool = False) -> Trail:
    trail = Trail(CHAT.mark, keeps_text=keeps_text, patience=5.0)
    if strips:
        trail.strip()
    return trail


ROLE = event_of("chat", "", None)[:-3].replace(b"}]}", b"}]") + b',"prompt_token_ids":[1, 22,333]}\n\n'


@pytest.mark.parametrize("way", ["open", "take"])
def test_the_prompts_ids_are_counted_and_dropped(way: str) -> None:
    trail = trail_of()
    kept = getattr(trail, way)(ROLE)
    assert trail.prompt == 3
    assert kept == ROLE.replace(b"[1, 22,333]", b"null")


@pytest.mark.parametrize("cut", [b"[[1,2],[3]]", b"[1,2", b"null"])
def test_what_is_no_row_of_ids_is_left_as_it_is(cut: bytes) -> None:
    trail = trail_of()
    odd = ROLE[: ROLE.index(b"[1, 22")] + cut
    assert trail.open(odd) == odd
    assert trail.prompt == 0


def test_a_client_that_asked_for_ids_gets_them() -> None:
    trail = trail_of(strips=False)
    event = event_of("chat", "a", [5])
    assert trail.open(ROLE) == ROLE
    assert trail.take(event) == event
    assert (trail.prompt, list(trail.ids), trail.clean) == (3, [5], 1)


def test_what_a_text_says_is_no_field() -> None:
    trail = trail_of()
    event = event_of("chat", '"token_ids":[1],"finish_reason":"stop","tool_calls":[{', [5])
    assert trail.take(event) == event.replace(b'"token_ids":[5]', b'"token_ids":null')
    assert (list(trail.ids), trail.finished, trail.obstacle) == ([5], False, "")


@pytest.mark.parametrize(
    ("delta", "parsed"),
    [
        ({"reasoning": "hm"}, True),
        ({"reasoning_content": "hm", "content": None}, True),
        ({"tool_calls": [{"index": 0}]}, True),
        ({"content": "a", "reasoning": None, "tool_calls": []}, False),
    ],
)
def test_an_answer_that_a_parser_takes_apart_is_not_continued(delta: dict[str, Any], parsed: bool) -> None:
    trail = trail_of()
    body = {"choices": [{"index": 0, "delta": delta, "finish_reason": None, "token_ids": [4]}]}
    trail.take(b"data: " + orjson.dumps(body) + b"\n\n")
    assert bool(trail.obstacle) is parsed


@pytest.mark.parametrize("ids", [b"5,,6", b"5,", b"4294967296", b"1,99999999999", b" "])
def test_ids_that_are_none_are_an_obstacle(ids: bytes) -> None:
    trail = trail_of()
    event = event_of("chat", "a", [5]).replace(b"[5]", b"[" + ids + b"]")
    assert trail.take(event).find(b'"token_ids":null') > 0
    assert trail.obstacle


def test_of_a_very_long_answer_no_more_is_kept_but_all_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_IDS", 4)
    reader = Reader("chat", strips=True, keeps_text=False, short=True)
    for number in range(10):
        reader.read([event_of("chat", f"t{number}", [number, number])])
    trail = reader.trail
    assert (len(trail.ids), trail.beyond, bool(trail.obstacle)) == (4, 16, True)
    usage = reader.harvest.usage()
    assert usage is not None
    assert (usage.prompt, usage.completion, usage.estimated) == (9, 20, False)


def test_behind_several_ids_nobody_knows_where_the_text_ended() -> None:
    trail = trail_of()
    trail.take(event_of("chat", "a", [1]))
    assert not trail.coarse
    trail.take(event_of("chat", "b", [2, 3]))
    assert trail.coarse
    trail.step_back()
    assert (trail.clean, trail.coarse) == (2, True)
    trail.take(event_of("chat", "c", [4]))
    assert (trail.clean, trail.coarse) == (4, False)


def test_what_it_takes_is_four_bytes_a_token() -> None:
    trail = trail_of()
    assert trail.ids.itemsize == 4
