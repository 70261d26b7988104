"""Server-sent events out of pieces of any size."""

import pytest
from openloop.events import EventReader

STREAM = b": comment\n\nevent: a\ndata: one\n\ndata:two\ndata:  lines\n\nid: 7\n\ndata: three\n\n"
PAYLOADS = [b"one", b"two\n lines", b"three"]


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_events_do_not_depend_on_line_ends_or_pieces(line_end: bytes, size: int) -> None:
    raw = STREAM.replace(b"\n", line_end) + b"data: last" + line_end * 2 + b"x"
    reader = EventReader()
    found = [payload for start in range(0, len(raw), size) for payload in reader.feed(raw[start : start + size])]
    assert found == [*PAYLOADS, b"last"]
    assert reader.unfinished


def test_nothing_is_left_after_a_whole_event() -> None:
    reader = EventReader()
    assert reader.feed(b"data: a\r\n\r\n") == [b"a"]
    assert not reader.unfinished
