"""Heads of answers as bytes."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Final

from tailrace.proxy.head import Head
from tailrace.proxy.headers import HOP_BY_HOP

_STATUS: Final = {status.value: b"HTTP/1.1 %d %b\r\n" % (status.value, status.phrase.encode()) for status in HTTPStatus}

_OURS: Final = HOP_BY_HOP | {b"content-length", b"x-request-id"}
_ANTHROPIC_ID: Final = b"request-id"
# Answers have the same few names; the memory of them is bounded.
_REMEMBERED: Final = 1024
_LONG: Final = 128
_NAME: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_PIECES: Final = 3
_beginnings: Final[dict[bytes, bytes]] = {}


def head_lines(head: Head, request_id: str, anthropic: bool) -> bytes:
    """Status line, headers and our request id, without framing headers and without the empty line.

    Anthropic's SDKs read the id under a name of their own.

    A value with a line break in it (a plugin's mistake, or an attack through one) loses everything from there on. What
    a plugin says of the framing or the id is left out: only the core can know.
    """
    if anthropic:
        kept = [pair for pair in head.headers if pair[0].strip().lower() != _ANTHROPIC_ID]
        head = Head(head.status, [*kept, (_ANTHROPIC_ID, request_id.encode())])
    lines = _lines_of(head)
    text = b"".join(lines)
    count = len(lines) // _PIECES + 1
    if text.count(b"\n") != count or text.count(b"\r") != count:
        head = Head(head.status, [(name, _one_line(value)) for name, value in head.headers])
        text = b"".join(_lines_of(head))
    return b"%bx-request-id: %b\r\n" % (text, request_id.encode())


def _lines_of(head: Head) -> list[bytes]:
    """The status line in one piece, each header in _PIECES."""
    lines = [_STATUS.get(head.status) or b"HTTP/1.1 %d \r\n" % head.status]
    for name, value in head.headers:
        beginning = _beginnings.get(name)
        if beginning is None:
            beginning = _beginning_of(name)
        if beginning:
            lines.append(beginning)
            lines.append(value)
            lines.append(b"\r\n")
    return lines


def _beginning_of(name: bytes) -> bytes:
    """How the lines of a name begin; empty for one that only the core says, and for what is no name."""
    clean = _one_line(name)
    beginning = b"" if clean.lower() in _OURS or _NAME.fullmatch(clean) is None else b"%b: " % clean
    if len(name) <= _LONG:
        if len(_beginnings) >= _REMEMBERED:
            _beginnings.clear()
        _beginnings[name] = beginning
    return beginning


def _one_line(text: bytes) -> bytes:
    return text.replace(b"\r", b"\n").partition(b"\n")[0]
