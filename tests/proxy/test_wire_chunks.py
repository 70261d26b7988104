"""The worker's side of the wire: chunks, wherever they are cut."""

from __future__ import annotations

import pytest
from tailrace.proxy import wire
from tailrace.proxy.wire import EXTENDED, WireError, frame, unframe, walk_chunks, without_extensions

END = b"0\r\n\r\n"
CHUNKS = [
    frame(b"a"),
    frame(b"hello\r\n0\r\n\r\n"),
    frame(b"x" * 9000),
    b"3\r\nabc\r\n",
    b"00A\r\n0123456789\r\n",
]
PAYLOAD = b"ahello\r\n0\r\n\r\n" + b"x" * 9000 + b"abc0123456789"


def walked(pieces):
    """What a reader gets that walks as the upstream connection does: payload, and what stands behind the end chunk."""
    buffer, payload, behind = b"", b"", None
    for piece in pieces:
        buffer += piece
        if behind is not None:
            continue
        at, count, end = walk_chunks(buffer)
        if end == EXTENDED:
            buffer = without_extensions(buffer)
            at, count, end = walk_chunks(buffer)
        assert (count == 0) == (at == 0)
        payload += unframe(buffer[:at]) if at else b""
        if end >= 0:
            behind, buffer = buffer[end:], b""
            continue
        buffer = buffer[at:]
    return payload, None if behind is None else behind + buffer


def test_whole():
    data = b"".join(CHUNKS)
    assert walk_chunks(data) == (len(data), 5, -1)
    assert unframe(data) == PAYLOAD
    assert walk_chunks(data + END) == (len(data), 5, len(data) + 3)
    assert walk_chunks(b"") == (0, 0, -1)
    for chunk in CHUNKS:
        assert walk_chunks(chunk) == (len(chunk), 1, -1)


EXTENDED_CHUNKS = [
    b"1;a\r\na\r\n",
    frame(b"hello\r\n0\r\n\r\n"),
    b'3 ; ext="a;\\"b" ; x=y\r\nabc\r\n',
    b"00A;b = c\r\n0123456789\r\n",
]


def test_extensions_are_taken_off():
    data = b"".join(EXTENDED_CHUNKS)
    bare = frame(b"a") + EXTENDED_CHUNKS[1] + frame(b"abc") + frame(b"0123456789")
    for end in (b"", END, b"0;x\r\n\r\nmore", b"5", b"5\r\nab"):
        assert without_extensions(data + end) == bare + end
    assert without_extensions(b"5;x\r\nab") == b"5\r\nab"
    assert walk_chunks(data) == (0, 0, EXTENDED)
    assert walk_chunks(data[8:]) == (len(EXTENDED_CHUNKS[1]), 1, EXTENDED)


@pytest.mark.parametrize("chunks", [CHUNKS, EXTENDED_CHUNKS])
def test_split_at_every_position(chunks):
    small = [chunk for chunk in chunks if len(chunk) < 100]
    data = b"".join(small) + END + b"more"
    wanted = PAYLOAD.replace(b"x" * 9000, b"")
    for at in range(len(data) + 1):
        assert walked([data[:at], data[at:]]) == (wanted, b"\r\nmore"), at


def test_byte_by_byte():
    data = b"".join(CHUNKS) + END
    assert walked([data[at : at + 1] for at in range(len(data))]) == (PAYLOAD, b"\r\n")


@pytest.mark.parametrize("end", [b"0\r\n", b"000\r\n", b"0;last=1\r\n", b"0 ;x\r\n"])
def test_end_chunk_spellings(end):
    assert walk_chunks(frame(b"a") + end) == (6, 1, 6 + len(end))


@pytest.mark.parametrize(
    "size",
    [
        b"",
        b" ",
        b"g",
        b"-1",
        b"+1",
        b"0x1",
        b"1 1",
        b"1_0",
        b"123456789",
        b"\xb2",
        b"1\n",
        b";x",
        b"1;\x00",
        b"1;",
        b"1;;a",
        b"1;a;",
        b"1;a b",
        b"1;a=",
        b"1;=b",
        b"1;a=\x01",
        b'1;a="b',
        b'1;a="b"c',
        b"1;a ",
        b" 1",
        b"a\r",
    ],
)
def test_malformed_sizes(size):
    with pytest.raises(WireError):
        walk_chunks(frame(b"good") + size + b"\r\n" + b"x" * 99)


def test_size_line_that_never_ends():
    assert walk_chunks(b"1;" + b"x" * 900) == (0, 0, -1)
    with pytest.raises(WireError, match="too long"):
        walk_chunks(b"1;" + b"x" * 2000)


@pytest.mark.parametrize("data", [b"3\r\nabcd\r\n", b"3\r\nab\r\nx", b"3\r\nabc\n\nx", b"3\r\nabc\rx"])
def test_chunk_that_is_not_as_long_as_it_says(data):
    with pytest.raises(WireError):
        walk_chunks(data)


def test_first_size():
    assert wire.first_size(b"1f4\r\nabc") == (500, 5)
    assert wire.first_size(b"1f") == (-1, 0)
    with pytest.raises(WireError):
        wire.first_size(b"zz\r\n")


@pytest.mark.parametrize("size", [1, 15, 16, 255, 4096, 8191, 8192, 70000])
def test_frame_and_back(size):
    assert unframe(frame(b"y" * size)) == b"y" * size
    assert unframe(frame(b"y" * size) * 3) == b"y" * size * 3
    assert walk_chunks((b"%X\r\n" % size) + b"y" * size + b"\r\n")[1] == 1
