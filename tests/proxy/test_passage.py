"""Chunks that go on without being read as events: nothing that is asked for on the side goes with them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from tailrace.proxy.dialects import CHAT, MESSAGES
from tailrace.proxy.harvest import Harvest
from tailrace.proxy.outcome import Usage
from tailrace.proxy.passage import LESSONS, MeteredPassage, Passage
from tailrace.proxy.sse import Event
from tailrace.proxy.wire import frame, unframe

pytestmark = pytest.mark.interpreted

Numbers = tuple[int, int, int]


def chunk(text: str | None, numbers: Numbers | None, *, finish: str | None = None, order: str = "pct") -> bytes:
    """An event in vLLM's spelling; `order` is that of prompt, completion and total in its usage."""
    choice = {"index": 0, "delta": {"content": text}, "logprobs": None, "finish_reason": finish, "token_ids": None}
    body: dict[str, Any] = {"id": "c", "model": "m 100%", "choices": [choice]}
    if numbers is not None:
        names = {"p": "prompt_tokens", "c": "completion_tokens", "t": "total_tokens"}
        prompt, completion, cached = numbers
        values = {"p": prompt, "c": completion, "t": prompt + completion}
        body["usage"] = {names[each]: values[each] for each in order}
        body["usage"]["prompt_tokens_details"] = {"cached_tokens": cached}
    return frame(b"data: " + orjson.dumps(body) + b"\n\n")


def harvest_of(*, asked: bool = True, route: Any = None) -> Harvest:
    """One of a stream whose usage was asked for on plugins' behalf, or by its client too."""
    call: Any = SimpleNamespace(route=route or SimpleNamespace(name="chat", dialect=CHAT), body=None, token_ids=None)
    harvest = Harvest(call)
    harvest.strip_usage = harvest.strip_running = asked
    return harvest


def begun(*, asked: bool = True, order: str = "pct") -> tuple[MeteredPassage, Harvest]:
    """A passage that has learnt, behind two events that were read."""
    harvest = harvest_of(asked=asked)
    passage = MeteredPassage(CHAT, harvest)
    for number, text in enumerate(("", "a")):
        raw = chunk(text, (9, number, 4), order=order)
        assert passage.passed(raw, 1) is None or number
        harvest.feed(Event(unframe(raw)))
    assert passage.passed(chunk("b", (9, 2, 4), order=order), 1) is not None
    return passage, harvest


@pytest.mark.parametrize("order", ["pct", "ptc", "ctp", "tcp"])
@pytest.mark.parametrize("text", ["", "x", "100%d", "ü" * 40, "\n", "y" * 300])
def test_running_usage_is_taken_out_and_noted(order: str, text: str) -> None:
    passage, harvest = begun(order=order)
    for completion in (3, 4, 9, 10, 250, 1000):
        passed = passage.passed(chunk(text, (9, completion, 4), order=order), 1)
        assert passed == chunk(text, None)
        assert harvest.usage() == Usage(9, completion, 4)


def test_usage_that_the_client_asked_for_stays() -> None:
    passage, harvest = begun(asked=False)
    raw = chunk("x", (9, 3, 4))
    assert passage.passed(raw, 1) == raw
    assert harvest.usage() == Usage(9, 3, 4)


@pytest.mark.parametrize(
    "other",
    [
        chunk('say "x"', (9, 3, 4)),
        chunk("x", (9, 3, 4), finish="stop"),
        chunk("x", (8, 3, 4)),
        chunk("x", (9, 3, 5)),
        chunk("x", (9, 3, 4)).replace(b'"total_tokens":12', b'"total_tokens":13'),
        chunk("x", (9, 3, 4)).replace(b'"id":"c"', b'"id":"d"'),
        frame(b"data: [DONE]\n\n"),
        frame(b'data: {"error":{"message":"x"}}\n\n'),
        frame(b'data: {"choices":[],"usage":{"prompt_tokens":9,"total_tokens":12,"completion_tokens":3}}\n\n'),
        chunk("x", (9, 3, 4))[:-6] + b"\r\n",
    ],
)
def test_what_differs_in_more_is_read(other: bytes) -> None:
    passage, _ = begun()
    for _ in range(LESSONS):  # so that nothing more is learnt
        passage.passed(frame(b'data: {"x":1}\n\n'), 1)
    assert passage.passed(other, 1) is None


def test_several_chunks_of_one_read_pass_together_or_not_at_all() -> None:
    passage, harvest = begun()
    pair = chunk("x", (9, 3, 4)) + chunk("y", (9, 4, 4))
    assert passage.passed(pair, 2) == chunk("x", None) + chunk("y", None)
    assert harvest.usage() == Usage(9, 4, 4)
    assert passage.passed(pair + frame(b"data: [DONE]\n\n"), 3) is None


def test_pieces_are_counted_where_the_engine_says_nothing() -> None:
    harvest = harvest_of()
    passage = MeteredPassage(CHAT, harvest)
    assert passage.passed(chunk("", None), 1) is None  # it brings nothing yet
    for number in range(1, 4):
        raw = chunk(f"t{number}", None)
        assert passage.passed(raw, 1) == raw
        assert harvest.usage() == Usage(0, number, 0, estimated=True)
    together = chunk("x", None) + chunk("y", None) + frame(b"data: [DONE]\n\n")
    assert passage.passed(together, 3) is None
    assert harvest.usage() == Usage(0, 3, 0, estimated=True)


def test_pieces_are_counted_on_top_of_what_was_said_at_the_beginning() -> None:
    harvest = harvest_of(route=SimpleNamespace(name="messages", dialect=MESSAGES))
    start = {"type": "message_start", "message": {"usage": {"input_tokens": 15, "output_tokens": 0}}}
    harvest.feed(Event(b"event: message_start\ndata: " + orjson.dumps(start) + b"\n\n"))
    assert harvest.usage() == Usage(15, 0, 0)
    passage = MeteredPassage(MESSAGES, harvest)
    delta = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "a"}}
    raw = frame(b"event: content_block_delta\ndata: " + orjson.dumps(delta) + b"\n\n")
    assert [passage.passed(raw, 1) for _ in range(3)] == [raw] * 3
    assert harvest.usage() == Usage(15, 3, 0, estimated=True)
    end = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 5}}
    harvest.feed(Event(b"event: message_delta\ndata: " + orjson.dumps(end) + b"\n\n"))
    assert harvest.usage() == Usage(15, 5, 0)


def test_without_a_meter_whatever_is_silent_passes() -> None:
    passage = Passage(CHAT)
    raw = chunk("x", (9, 3, 4))
    assert passage.passed(raw, 1) == raw
    assert passage.passed(raw + raw, 2) == raw + raw
    assert passage.passed(chunk("x", None, finish="stop"), 1) is None
    assert passage.passed(raw + chunk("x", None, finish="stop"), 2) is None
