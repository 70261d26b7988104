"""USE: usage that a gateway asks for on its own behalf, and that its clients never see."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest
from billed import billed, cost, last_usage, stream, token, unary, unasked, usage
from fakes import CHAT, PATH, RawClient, Upstream, event, gateway, json_answer, run, sse_answer, sse_head, yaml_for
from tailrace.proxy.testing.answers import chunked

from cases.scene import STREAM

DONE = event("[DONE]")
UNTIL_CLOSE = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
REFUSED = json_answer({"error": {"message": "stream_options: extra fields not permitted", "code": 400}}, 400)


class Worker:
    """Sends the same bytes to each request, in other pieces."""

    def __init__(self, *, framed: bool) -> None:
        self.pieces: Sequence[bytes] = ()
        self._framed = framed

    async def __call__(self, conn, request):
        await conn.send(sse_head() if self._framed else UNTIL_CLOSE)
        for piece in self.pieces:
            await conn.send(chunked(piece) if self._framed else piece)
        if self._framed:
            await conn.send(chunked(b""))
        else:
            conn.close()


def splits(data: bytes, events: list[bytes], step: int) -> list[list[bytes]]:
    """Whole, an event each, byte by byte, and in two pieces wherever that can be."""
    halves = [[data[:at], data[at:]] for at in range(1, len(data), step)]
    return [[data], events, [data[at : at + 1] for at in range(len(data))], *halves]


async def redacted(events: list[bytes]) -> bytes:
    """What a client gets of a stream that `redact` has gone through, and nothing else."""
    async with (
        Upstream(sse_answer(events)) as upstream,
        gateway(yaml_for(upstream, plugins="[redact]")) as process,
        RawClient(process.doors[0].shown) as client,
    ):
        return (await client.post(PATH, STREAM)).body


@pytest.mark.parametrize("running", [True, False])
@pytest.mark.parametrize(
    ("framed", "before", "step"),
    [(True, "", 1), (False, "", 7), (True, "- redact\n", 9)],
    ids=["chunked", "until close", "redact"],
)
def test_USE_01_clients_never_see_usage_that_they_did_not_ask_for(
    tmp_path: Path, running: bool, framed: bool, before: str, step: int
) -> None:
    events = stream(2, 9, 4, running=running)
    plain = [event(each) for each in unasked(events).replace(b"data: ", b"").strip().split(b"\n\n")]

    async def main() -> None:
        worker = Worker(framed=framed)
        expected = await redacted(plain) if before else b"".join(plain)
        async with billed(tmp_path, worker, before=before) as scene:
            ways = splits(b"".join(events), events, step)
            for pieces in ways:
                worker.pieces = pieces
                got = await scene.client.post(PATH, STREAM)
                assert got.complete
                assert got.body == expected, pieces
                assert got.body.endswith(DONE)
            for record in await scene.records(len(ways)):
                assert (record.prompt, record.completion, record.cached, record.estimated) == (9, 2, 4, False)
                assert record.amount == cost(9, 2, 4)

    run(main())


@pytest.mark.parametrize(
    ("options", "reach"),
    [
        ({"include_usage": False, "x_vendor": 1}, {"x_vendor": 1}),
        ({"x_vendor": [1e5, {"a": "b"}]}, {"x_vendor": [1e5, {"a": "b"}]}),
        ({"include_usage": False, "continuous_usage_stats": False}, {}),
        (None, {}),
    ],
)
@pytest.mark.parametrize("running", [True, False])
def test_USE_02_who_said_no_sees_no_usage_and_is_billed_exactly(
    tmp_path: Path, options: Any, reach: Any, running: bool
) -> None:
    events = stream(5, running=running)

    async def main() -> None:
        async with billed(tmp_path, sse_answer(events)) as scene:
            got = await scene.client.post(PATH, {**STREAM, "stream_options": options})
            assert got.body == unasked(events)
            asked = scene.upstream.requests[0].json()["stream_options"]
            assert asked == {**reach, "include_usage": True, "continuous_usage_stats": True}
            record = await scene.record()
            assert (record.amount, record.estimated) == (cost(9, 5), False)

    run(main())


@pytest.mark.parametrize("running", [True, False])
def test_USE_02_who_asked_for_all_of_it_gets_all_of_it(tmp_path: Path, running: bool) -> None:
    events = stream(5, running=running)
    options = {"include_usage": True, "continuous_usage_stats": True}

    async def main() -> None:
        async with billed(tmp_path, sse_answer(events)) as scene:
            got = await scene.client.post(PATH, {**STREAM, "stream_options": options})
            assert got.body == b"".join(events)
            assert scene.upstream.requests[0].json()["stream_options"] == options
            assert (await scene.record()).amount == cost(9, 5)

    run(main())


def test_USE_02_who_asked_for_the_last_only_gets_the_last_only(tmp_path: Path) -> None:
    events = stream(5)
    expected = unasked(events).replace(DONE, last_usage(9, 5) + DONE)

    async def main() -> None:
        async with billed(tmp_path, sse_answer(events)) as scene:
            got = await scene.client.post(PATH, {**STREAM, "stream_options": {"include_usage": True}})
            assert got.body == expected
            assert (await scene.record()).amount == cost(9, 5)

    run(main())


def test_USE_03_an_engine_that_refuses_the_option_is_asked_without_it(tmp_path: Path) -> None:
    """Once: it is known from then on, and its client hears of nothing."""
    events = [*stream(5, running=False)[:-2], DONE]  # without the figures that it was not asked for

    async def strict(conn, request):
        refuses = "include_usage" in request.json().get("stream_options", {})
        await conn.send(REFUSED if refuses else sse_answer(events))

    async def main() -> None:
        async with billed(tmp_path, strict) as scene:
            for options in ({}, {"stream_options": {"x_vendor": 1}}):
                got = await scene.client.post(PATH, {**STREAM, **options})
                assert (got.status, got.body) == (200, b"".join(events))
            options = [request.json().get("stream_options") for request in scene.upstream.requests]
            assert options == [{"include_usage": True, "continuous_usage_stats": True}, None, {"x_vendor": 1}]
            for record in await scene.records(2):
                assert (record.completion, record.estimated, record.requests, record.ending) == (
                    4,
                    True,
                    1,
                    "completed",
                )
                assert record.lost_amount == 0  # what was refused at the door was no work

    run(main())


def test_USE_03_nothing_is_asked_where_nothing_streams(tmp_path: Path) -> None:
    async def main() -> None:
        async with billed(tmp_path, unary(3, 2)) as scene:
            for body in (CHAT, {**CHAT, "stream": False}, {**CHAT, "stream": False, "stream_options": None}):
                assert (await scene.client.post(PATH, body)).status == 200
                assert orjson.loads(scene.upstream.requests[-1].body) == body
            assert {record.amount for record in await scene.records(3)} == {cost(3, 2)}

    run(main())


def test_USE_03_a_refusal_of_what_the_client_asked_reaches_it(tmp_path: Path) -> None:
    refusal = json_answer({"error": {"message": "temperature must not be negative"}}, 400)

    async def main() -> None:
        async with billed(tmp_path, refusal) as scene:
            got = await scene.client.post(PATH, {**STREAM, "temperature": -1})
            assert (got.status, got.json()["error"]["message"]) == (400, "temperature must not be negative")
            assert len(scene.upstream.requests) == 1
            record = await scene.record()
            assert (record.amount, record.requests, record.status, record.ending) == (0, 0, 400, "refused")

    run(main())


@pytest.mark.parametrize("cut", [True, False], ids=["in pieces", "event by event"])
def test_USE_04_usage_that_stands_on_the_finish_chunk_counts(tmp_path: Path, cut: bool) -> None:
    said = {
        **usage(9, 3, 4),
        "completion_tokens_details": {"reasoning_tokens": 2, "accepted_prediction_tokens": None},
    }
    last = orjson.loads(token(3, finish="stop", running=False)[6:])
    events = [*(token(number, running=False) for number in range(3)), event({**last, "usage": said}), DONE]

    async def main() -> None:
        worker = Worker(framed=True)
        data = b"".join(events)
        worker.pieces = [data[at : at + 11] for at in range(0, len(data), 11)] if cut else events
        async with billed(tmp_path, worker) as scene:
            got = await scene.client.post(PATH, STREAM)
            assert got.body == unasked(events)
            record = await scene.record()
            assert (record.prompt, record.completion, record.cached, record.estimated) == (9, 3, 4, False)
            assert record.amount == cost(9, 3, 4)

    run(main())


def test_USE_04_a_null_in_every_event_is_no_figure(tmp_path: Path) -> None:
    """As OpenAI writes usage that was asked for; the event without choices that Azure begins with is none of it."""
    prelude = event({"id": "c", "choices": [], "prompt_filter_results": [], "usage": None})
    events = [prelude]
    for number in range(5):
        body = orjson.loads(token(number, running=False, finish="stop" if number == 4 else None)[6:])
        events.append(event({**body, "usage": None}))
    events += [last_usage(9, 4), DONE]
    shown = [*(each.replace(b',"usage":null', b"") for each in events[:-2]), DONE]

    async def main() -> None:
        async with billed(tmp_path, sse_answer(events)) as scene:
            got = await scene.client.post(PATH, STREAM)
            assert got.body == b"".join(shown)
            assert (await scene.record()).amount == cost(9, 4)

    run(main())
