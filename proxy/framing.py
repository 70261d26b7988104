"""Heads of answers as bytes."""

from __future__ import annotations

from http import HTTPStatus

from tailrace.proxy.head import Head
from tailrace.proxy.headers import HOP_BY_HOP

_STATUS = {status.value: b"HTTP/1.1 %d %b\r\n" % (status.value, status.phrase.encode()) for status in HTTPStatus}

_OURS = HOP_BY_HOP | {b"content-length", b"x-request-id"}


def keep_ours(head: Head) -> None:
    """Drop what a plugin has put into a head that only the core can know: how the answer is framed, and its id."""
    for name, _ in head.headers:
        if name.lower() in _OURS:
            head.headers = [pair for pair in head.headers if pair[0].lower() not in _OURS]
            return


def head_lines(head: Head, request_id: str) -> bytes:
    """Status line, headers and our request id, without framing headers and without the empty line.

    A value with a line break in it (a plugin's mistake, or an attack through one) loses everything from there on.
    """
    status = _STATUS.get(head.status) or b"HTTP/1.1 %d \r\n" % head.status
    lines = b"".join([b"%b: %b\r\n" % pair for pair in head.headers])
    if lines.count(b"\n") != len(head.headers) or lines.count(b"\r") != len(head.headers):
        lines = b"".join([b"%b: %b\r\n" % (_one_line(name), _one_line(value)) for name, value in head.headers])
    return b"%b%bx-request-id: %b\r\n" % (status, lines, request_id.encode())


def _one_line(text: bytes) -> bytes:
    return text.replace(b"\r", b"\n").partition(b"\n")[0]
