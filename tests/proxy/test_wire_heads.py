"""The worker's side of the wire: heads, read strictly."""

from __future__ import annotations

import pytest
from tailrace.proxy import wire
from tailrace.proxy.wire import CHUNKED, UNTIL_CLOSE, WireError, parse_head

OK = b"HTTP/1.1 200 OK"


def head(*lines, status=OK):
    return parse_head(b"\r\n".join([status, *lines]))


def test_status_line_and_headers():
    parsed = head(b"Content-Type: application/json", b"X-A:  b \t", b"x-a: c", b"Content-Length: 12")
    assert (parsed.status, parsed.length, parsed.keep_alive, parsed.kind) == (200, 12, True, wire.JSON)
    assert parsed.headers == [(b"content-type", b"application/json"), (b"x-a", b"b"), (b"x-a", b"c")]


def test_the_same_head_again():
    """Lines once read are remembered, and mean the same the second time."""
    lines = [
        b"content-type: text/event-stream",
        b"X-Request-Id: 7",
        b"transfer-encoding: chunked",
        b"connection: close",
    ]
    for _ in range(3):
        parsed = head(*lines)
        assert (parsed.kind, parsed.length, parsed.keep_alive, parsed.request_id) == (wire.EVENTS, CHUNKED, False, b"7")
        assert parsed.headers == [(b"content-type", b"text/event-stream")]
    assert head(b"content-length: 1").keep_alive


@pytest.mark.parametrize(
    "line",
    [
        b"HTTP/1.1 200", b"HTTP/1.0 200 OK", b"HTTP/1.1 599 Odd reason \xe9\tthing", b"HTTP/1.1 100 Continue",
        b"HTTP/1.1 200 ",
    ],
)  # fmt: skip
def test_good_status_lines(line):
    assert head(b"content-length: 0", status=line).status == int(line[9:12])


@pytest.mark.parametrize(
    "line",
    [
        b"", b"HTTP/2 200 OK", b"HTTP/1.1 099 OK", b"HTTP/1.1 600 OK", b"HTTP/1.1 20 OK", b"HTTP/1.1 2000 OK",
        b"HTTP/1.1  200 OK", b"http/1.1 200 OK", b"HTTP/1.1 200OK", b"HTTP/1.1 200 a\rb", b"HTTP/1.1 200 a\x00b",
        b"HTTP/1.1 200 OK\n", b"HTTP/1.12 200 OK", b"ICY 200 OK", b" HTTP/1.1 200 OK",
    ],
)  # fmt: skip
def test_bad_status_lines(line):
    for _ in range(2):
        with pytest.raises(WireError, match="status line"):
            head(status=line)


@pytest.mark.parametrize(
    "line",
    [
        b"no colon", b": no name", b"bad name: x", b"x : y", b" folded: x", b"\tfolded", b"x: a\rb", b"x: a\nb",
        b"x: a\x00b", b"na\x00me: x", b"n\xe4me: x",
    ],
)  # fmt: skip
def test_bad_headers(line):
    for _ in range(2):
        with pytest.raises(WireError):
            head(line)


@pytest.mark.parametrize("value", [b"+3", b"-3", b"0x3", b"3, 3", b"3 3", b"", b"3.0", b"9" * 16, b"\xb2"])
def test_bad_lengths(value):
    with pytest.raises(WireError, match="length"):
        head(b"content-length: " + value)


@pytest.mark.parametrize(
    "lines",
    [
        [b"content-length: 3", b"content-length: 4"],
        [b"content-length: 3", b"transfer-encoding: chunked"],
        [b"transfer-encoding: chunked", b"content-length: 3"],
        [b"transfer-encoding: chunked", b"transfer-encoding: chunked"],
        [b"transfer-encoding: gzip, chunked"],
        [b"transfer-encoding: identity"],
        [b"transfer-encoding: xchunked"],
        [b"transfer-encoding: \x0bchunked"],
    ],
)
def test_framings_that_contradict(lines):
    with pytest.raises(WireError):
        head(*lines)


def test_equal_lengths_and_spellings():
    assert head(b"content-length: 3", b"Content-Length:3").length == 3
    assert head(b"content-length: 003").length == 3
    assert head(b"Transfer-Encoding: Chunked").length == CHUNKED


@pytest.mark.parametrize("connection", [[b"X-Hop, keep-alive"], [b"x-other", b"close", b" ,\tX-HOP\t,"]])
def test_headers_that_the_connection_header_names_stay_behind(connection):
    lines = [b"x-a: b", b"X-Hop: c", b"x-hop: d", b"x-hop-more: e", b"content-length: 1"]
    for order in (1, -1):
        for _ in range(2):
            given = [*lines, *[b"Connection: " + value for value in connection]][::order]
            parsed = head(*given)
            assert sorted(parsed.headers) == [(b"x-a", b"b"), (b"x-hop-more", b"e")]
            assert (parsed.length, parsed.keep_alive) == (1, b"close" not in connection)
            assert sorted(wire.all_headers(b"\r\n".join([OK, *given]))) == parsed.headers[::order]
    assert len(head(*lines).headers) == 4


@pytest.mark.parametrize(
    ("status", "lines", "length", "keep_alive"),
    [
        (OK, [], UNTIL_CLOSE, False),
        (OK, [b"connection: keep-alive"], UNTIL_CLOSE, False),
        (b"HTTP/1.1 204 No", [], 0, True),
        (b"HTTP/1.1 304 Not", [b"content-length: 10"], 0, True),
        (OK, [b"content-length: 1", b"connection: close"], 1, False),
        (OK, [b"connection: Close", b"content-length: 1"], 1, False),
        (b"HTTP/1.0 200 OK", [b"content-length: 1"], 1, False),
        (b"HTTP/1.0 200 OK", [b"content-length: 1", b"connection: Keep-Alive"], 1, True),
        (OK, [b"content-length: 1", b"connection: keep-alive, close"], 1, False),
    ],
)
def test_length_and_reuse(status, lines, length, keep_alive):
    parsed = head(*lines, status=status)
    assert (parsed.length, parsed.keep_alive) == (length, keep_alive)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (b"application/json", wire.JSON),
        (b"Application/JSON; charset=utf-8", wire.JSON),
        (b"application/problem+json", wire.JSON),
        (b"text/event-stream;charset=x", wire.EVENTS),
        (b"Text/Event-Stream", wire.EVENTS),
        (b"text/plain", wire.TEXT),
        (b"application/jsonl", wire.OTHER),
        (b"", wire.OTHER),
    ],
)
def test_kinds(value, kind):
    assert head(b"content-type: " + value).kind == kind


def test_content_coding():
    assert head(b"content-encoding: gzip").coded
    assert not head(b"content-encoding: identity").coded


def test_names_and_lines_remembered_are_bounded():
    for number in range(3000):
        head(b"x-%d: %d" % (number, number))
    assert len(wire._lines) <= 1024
    assert len(wire._names) <= 1024


def test_an_id_is_not_remembered() -> None:
    """Each answer has another: those that repeat would be forgotten for them."""
    for name in (b"request-id", b"x-request-id"):
        wire.parse_head(b"HTTP/1.1 200 OK\r\n%b: only-once" % name)
        assert b"%b: only-once" % name not in wire._lines
    assert wire.parse_head(b"HTTP/1.1 200 OK\r\nrequest-id: a").headers == [(b"request-id", b"a")]
