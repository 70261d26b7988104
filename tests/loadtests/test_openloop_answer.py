"""One answer, judged as an SDK would judge it, however its bytes are cut."""

import pytest
from openloop.answer import Answer
from openloop.dialects import DIALECTS
from openloop.record import Outcome, Record
from scripted_endpoint import DONE, GOOD_STREAM, HEAD, LAST_CHUNK, chat_delta, chunk, event, plain, stream

ERROR = {"error": {"message": "engine died", "code": 500}}


def record() -> Record:
    return Record(number=0, phase=0, measured=True, scheduled=1_000, prompt_tokens=1, max_tokens=2)


def read(
    raw: bytes, *, dialect: str = "chat", unary: bool = False, piece: int = 0, cut: bool = False
) -> tuple[Record, Answer]:
    """Feed an answer in pieces that arrive 10 ns apart, the first at 2,000; `cut` ends the connection then."""
    seen = record()
    answer = Answer(seen, DIALECTS[dialect], stream=not unary)
    size = piece or len(raw) or 1
    now = 2_000
    for start in range(0, len(raw), size):
        answer.feed(raw[start : start + size], now)
        now += 10
    if cut:
        answer.connection_ended(now, "connection closed")
    return seen, answer


MESSAGES = stream(
    b"event: message_start\n" + event({"type": "message_start", "message": {"content": []}}),
    b"event: ping\n" + event({"type": "ping"}),
    event({"type": "content_block_delta", "delta": {"type": "text_delta", "text": "a"}}),
    event({"type": "content_block_delta", "delta": {"type": "thinking_delta", "thinking": "b"}}),
    event({"type": "message_stop"}),
)
RESPONSES = stream(
    event({"type": "response.created"}),
    event({"type": "response.output_text.delta", "delta": "a"}),
    event({"type": "response.output_text.delta", "delta": "b"}),
    event({"type": "response.completed", "response": {"error": None}}),
)
COMPLETIONS = stream(
    event({"choices": [{"text": "a"}]}),
    b": a comment\n\n",
    event({"choices": [{"text": "b"}]}),
    event({"choices": [{"text": "", "finish_reason": "length"}]}),
    DONE,
)


@pytest.mark.parametrize("piece", [0, 1, 7])
@pytest.mark.parametrize(
    ("dialect", "raw"),
    [("chat", GOOD_STREAM), ("completions", COMPLETIONS), ("responses", RESPONSES), ("messages", MESSAGES)],
)
def test_a_whole_stream_is_ok_in_every_dialect(dialect: str, raw: bytes, piece: int) -> None:
    seen, answer = read(raw, dialect=dialect, piece=piece)
    assert (seen.outcome, seen.detail) == (Outcome.OK, "")
    assert len(seen.contents) == 2
    assert answer.reusable


@pytest.mark.parametrize("piece", [0, 1])
@pytest.mark.parametrize(
    ("raw", "cut", "outcome"),
    [
        pytest.param(
            stream(chat_delta(content="a"), event(ERROR), DONE), False, Outcome.STREAM_ERROR, id="error, DONE"
        ),
        pytest.param(HEAD + chunk(event(ERROR)), True, Outcome.STREAM_ERROR, id="error, then closed"),
        pytest.param(stream(chat_delta(content="a")), False, Outcome.TRUNCATED, id="clean end without DONE"),
        pytest.param(HEAD + chunk(chat_delta(content="a")), True, Outcome.TRUNCATED, id="cut between chunks"),
        pytest.param(GOOD_STREAM[:-30], True, Outcome.TRUNCATED, id="cut inside a chunk"),
        pytest.param(GOOD_STREAM.removesuffix(LAST_CHUNK), True, Outcome.TRUNCATED, id="DONE, but no last chunk"),
        pytest.param(stream(DONE, b"data: half"), False, Outcome.TRUNCATED, id="half an event behind DONE"),
        pytest.param(b"", True, Outcome.CONNECTION_FAILED, id="closed without a byte"),
        pytest.param(b"HTTP/1.1 20", True, Outcome.TRUNCATED, id="cut inside the head"),
        pytest.param(b"SSH-2.0-OpenSSH\r\n", False, Outcome.MALFORMED, id="another protocol"),
        pytest.param(stream(b"data: {oops\n\n", DONE), False, Outcome.MALFORMED, id="an event that is not JSON"),
        pytest.param(stream(b"data: [1]\n\n", DONE), False, Outcome.MALFORMED, id="an event that is no object"),
        pytest.param(plain(b"{}"), False, Outcome.TRUNCATED, id="no stream at all"),
        pytest.param(plain(b'{"error":1}', "503 Busy"), False, Outcome.HTTP_ERROR, id="503"),
        pytest.param(plain(b"long", "502 Bad")[:-2], True, Outcome.HTTP_ERROR, id="502, cut"),
    ],
)
def test_a_broken_stream_is_named_for_what_broke_it(raw: bytes, cut: bool, outcome: Outcome, piece: int) -> None:
    seen, _ = read(raw, piece=piece, cut=cut)
    assert seen.outcome is outcome


@pytest.mark.parametrize(
    ("dialect", "payload"),
    [
        ("messages", {"type": "error", "error": {"type": "overloaded_error"}}),
        ("responses", {"type": "response.failed", "response": {}}),
        ("responses", {"type": "error", "message": "no"}),
        ("completions", ERROR),
    ],
)
def test_error_events_are_known_in_every_dialect(dialect: str, payload: object) -> None:
    seen, _ = read(stream(event(payload), event({"type": "message_stop"}), DONE), dialect=dialect)
    assert seen.outcome is Outcome.STREAM_ERROR


def test_done_does_not_end_a_stream_of_the_other_dialects() -> None:
    for dialect in ("messages", "responses"):
        assert read(stream(DONE), dialect=dialect)[0].outcome is Outcome.TRUNCATED


@pytest.mark.parametrize(
    ("raw", "cut", "outcome"),
    [
        pytest.param(plain(b'{"choices":[]}'), False, Outcome.OK, id="whole"),
        pytest.param(b'HTTP/1.1 200 OK\r\n\r\n{"choices":[]}', True, Outcome.OK, id="ended by the connection"),
        pytest.param(plain(b'{"choices":[]}')[:-1], True, Outcome.TRUNCATED, id="short of its length"),
        pytest.param(plain(b"<html>"), False, Outcome.MALFORMED, id="not JSON"),
        pytest.param(plain(b'{"choices":[],"error":{"code":500}}'), False, Outcome.MALFORMED, id="error under a 200"),
        pytest.param(plain(b"no", "429 Slow Down"), False, Outcome.HTTP_ERROR, id="429"),
        pytest.param(b"HTTP/1.1 100 Continue\r\n\r\n" + plain(b'{"choices":[]}'), False, Outcome.OK, id="behind a 100"),
    ],
)
def test_whole_answers(raw: bytes, cut: bool, outcome: Outcome) -> None:
    for piece in (0, 1):
        seen, _ = read(raw, unary=True, piece=piece, cut=cut)
        assert seen.outcome is outcome


def test_an_error_carries_its_status_and_the_server_s_words() -> None:
    seen, _ = read(plain(b"queue full", "503 Busy"))
    assert (seen.error_kind(), seen.detail, seen.status) == ("http_503", "queue full", 503)


@pytest.mark.parametrize(
    ("delta", "is_content"),
    [
        ({"content": "a"}, True),
        ({"reasoning_content": "a"}, True),
        ({"reasoning": "a"}, True),
        ({"refusal": "a"}, True),
        ({"tool_calls": [{"index": 0}]}, True),
        ({"role": "assistant", "content": ""}, False),
        ({}, False),
    ],
)
def test_what_counts_as_content(delta: dict[str, object], is_content: bool) -> None:
    seen, _ = read(stream(chat_delta(**delta), DONE))
    assert bool(seen.contents) is is_content


def test_times_count_from_the_schedule() -> None:
    seen = record()
    answer = Answer(seen, DIALECTS["chat"], stream=True)
    answer.feed(HEAD, 2_000)
    for now in (3_000, 3_500, 4_500):
        answer.feed(chunk(chat_delta(content="a")), now)
    answer.feed(chunk(DONE) + LAST_CHUNK, 5_000)
    assert (seen.first_byte, seen.time_to_first_token, seen.gaps(), seen.total) == (2_000, 2_000, [500, 1_000], 4_000)


@pytest.mark.parametrize(
    "raw",
    [
        b'HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 14\r\n\r\n{"choices":[]}',
        b'HTTP/1.0 200 OK\r\ncontent-length: 14\r\n\r\n{"choices":[]}',
        plain(b'{"choices":[]}') + b"HTTP/1.1 200 OK\r\n",
        plain(b'{"choices":[]}') + b"junk",
    ],
)
def test_a_connection_is_not_used_again_when_it_may_be_dirty(raw: bytes) -> None:
    seen, answer = read(raw, unary=True)
    assert seen.outcome is Outcome.OK
    assert not answer.reusable
