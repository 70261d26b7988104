"""The event splitter: the same events however the bytes arrive."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tailrace.proxy.sse import BOM, Event, Splitter, ends_event

STREAMS = {
    "plain": [b"data: a\n\n", b"data: b\n\n"],
    "crlf": [b"data: a\r\n\r\n", b"data: b\r\n\r\n"],
    "cr": [b"data: a\r\r", b"data: b\r\r"],
    "mixed": [b"data: a\r\n\n", b"data: b\n\r\n", b"data: c\r\r", b"data: d\n\n"],
    "lines": [b"event: x\ndata: a\ndata: b\nid: 7\n\n", b"event: x\r\ndata: a\r\ndata: b\r\n\r\n"],
    "comments": [b": one\n\n", b": two\ndata: a\n\n", b":\n\n"],
    "odd": [b"data\n\n", b"data:\n\n", b"retry: 3\n\n", b"\xff\x00\n\n"],
    "bom": [BOM + b"data: a\n\n", b"data: b\n\n"],
    "open end": [b"data: a\n\n", b"data: b"],
    "open line": [b"data: a\n\n", b"data: b\n"],
}


def cut(pieces, limit=1 << 20):
    """Every event of the pieces fed one after the other, the open end included."""
    splitter = Splitter(limit)
    events = [event for piece in pieces for event in splitter.feed(piece)]
    return [event.raw for event in events + splitter.finish()]


def payloads(pieces):
    """What the events hold, without those that hold nothing."""
    return [data for raw in cut(pieces) if (data := Event(raw).data)]


@pytest.mark.parametrize("name", STREAMS)
def test_whole(name):
    assert cut([b"".join(STREAMS[name])]) == STREAMS[name]


@pytest.mark.parametrize("name", STREAMS)
def test_split_at_every_position(name):
    data = b"".join(STREAMS[name])
    wanted = payloads([data])
    for at in range(len(data) + 1):
        pieces = [data[:at], data[at:]]
        assert b"".join(cut(pieces)) == data
        assert payloads(pieces) == wanted, at


@pytest.mark.parametrize("name", STREAMS)
def test_byte_by_byte(name):
    data = b"".join(STREAMS[name])
    pieces = [data[at : at + 1] for at in range(len(data))]
    assert b"".join(cut(pieces)) == data
    assert payloads(pieces) == payloads([data])


@pytest.mark.parametrize("name", ["plain", "lines", "comments", "bom", "odd"])
def test_each_event_comes_with_its_last_byte(name):
    """Nothing waits for the next event; a lone CR may be followed by its LF, so those streams are not here."""
    splitter = Splitter()
    for event in STREAMS[name]:
        if b"\r" not in event:
            assert [found.raw for found in splitter.feed(event[:-1])] == []
            assert [found.raw for found in splitter.feed(event[-1:])] == [event]


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n", b"\r\r", b"\n\r\n", b"\r\n\n", b"\n\r", b"\r\n\r"])
def test_every_terminator_ends_an_event_at_once(end):
    splitter = Splitter()
    assert [event.data for event in splitter.feed(b"data: a" + end)] == [b"a"]


def test_a_line_feed_behind_its_carriage_return_is_no_event():
    splitter = Splitter()
    first = splitter.feed(b"data: a\r\n\r")
    later = splitter.feed(b"\ndata: b\n\n")
    assert [event.data for event in first + later] == [b"a", b"b"]


@settings(max_examples=150)
@given(
    st.lists(
        st.sampled_from(
            [b"data: x", b"data:y", b":c", b"event: e", b"\n", b"\r", b"\r\n", b"\n\n", b"\r\n\r\n", b"", BOM]
        ),
        max_size=14,
    ),
    st.lists(st.integers(0, 80), max_size=5),
)
def test_no_byte_is_lost_and_no_payload_depends_on_the_cut(tokens, cuts):
    data = b"".join(tokens)
    places = sorted({min(at, len(data)) for at in cuts} | {0, len(data)})
    pieces = [data[start:end] for start, end in itertools.pairwise(places)]
    assert b"".join(cut(pieces)) == data
    if BOM not in data[1:]:
        assert payloads(pieces) == payloads([data])


@pytest.mark.parametrize("name", STREAMS)
def test_the_end_of_an_event_is_known_by_its_bytes(name):
    raw = b"".join(STREAMS[name])
    for at in range(1, len(raw) + 1):
        splitter = Splitter()
        splitter.feed(raw[:at])
        assert ends_event(raw[:at]) == (not splitter.rest.strip(b"\r\n"))


def test_bounded():
    """An event above the limit is given up in pieces, and what follows is cut as ever."""
    splitter = Splitter(100)
    held = 0
    out = b""
    for _ in range(50):
        out += b"".join(event.raw for event in splitter.feed(b"x" * 30))
        held = max(held, len(splitter.rest))
    assert held <= 100
    out += b"".join(event.raw for event in splitter.feed(b"\n\ndata: a\n\n"))
    assert out.endswith(b"data: a\n\n")
    assert len(out) == 1500 + 11


@pytest.mark.parametrize(
    ("raw", "data", "name"),
    [
        (b"data: a\n\n", b"a", b""),
        (b"data:a\n\n", b"a", b""),
        (b"data:  a\n\n", b" a", b""),
        (b"data: a\r\n\r\n", b"a", b""),
        (b"data: a\ndata: b\ndata:\n\n", b"a\nb\n", b""),
        (b"event: ping\ndata: {}\n\n", b"{}", b"ping"),
        (b"event:ping\r\ndata:{}\r\n\r\n", b"{}", b"ping"),
        (b": data: a\n\n", b"", b""),
        (b"database: a\n\n", b"", b""),
        (b"data\n\n", b"", b""),
        (BOM + b"data: a\n\n", b"a", b""),
        (b"\n\ndata: a\n\n", b"a", b""),
        (b"data: a", b"a", b""),
    ],
)
def test_fields(raw, data, name):
    event = Event(raw)
    assert (event.data, event.name) == (data, name)


def test_name_behind_a_bom():
    assert Event(BOM + b"event: ping\ndata: 1\n\n").name == b"ping"


def test_json():
    assert Event(b'data: {"a":\ndata: 1}\n\n').json() == {"a": 1}
    assert Event(b"data: [DONE]\n\n").json() is None
    assert Event(b"data: null\n\n").json() is None


def test_replaced_keeps_the_name():
    assert Event(b"event: x\ndata: 1\n\n").replaced(b"2").raw == b"event: x\ndata: 2\n\n"
    assert Event(b"data: 1\r\n\r\n").replaced(b"2").raw == b"data: 2\n\n"
