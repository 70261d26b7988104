"""A worker's answer on the wire: a strict head parser and whole-chunk walking. Values in, values out.

Written here rather than taken from a parser library because the relay forwards chunked bodies as they came, framing
included, and a library only hands out payloads. Anything that is not plainly well formed is refused.
"""

from __future__ import annotations

import re
from typing import Final

from tailrace.proxy.head import HeaderList
from tailrace.proxy.headers import (
    CODING,
    CONNECTION,
    DROP,
    HOP_BY_HOP,
    LENGTH,
    LOAD,
    OWN_PREFIX,
    PASS,
    REQUEST_ID,
    STAGES,
    answer_rule,
)

MAX_HEAD: Final = 64 * 1024
UNTIL_CLOSE: Final = -1
CHUNKED: Final = -2
EXTENDED: Final = -2

OTHER: Final = 0
JSON: Final = 1
EVENTS: Final = 2
TEXT: Final = 3

# What is unusual about an answer that is waited for, as bits.
BODILESS: Final = 1
VERBATIM: Final = 2

_MEDIA: Final = {b"application/json": JSON, b"text/event-stream": EVENTS, b"text/plain": TEXT}
_STATUS_LINE: Final = re.compile(rb"HTTP/1\.([01]) ([1-5]\d\d)(?: [^\x00-\x08\x0a-\x1f\x7f]*)?\Z")
_BAD_VALUE: Final = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_TOKEN: Final = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_VALUE: Final = _TOKEN + rb'|"(?:[\t \x21\x23-\x5b\x5d-\x7e\x80-\xff]|\\[\t\x20-\x7e\x80-\xff])*"'
_EXTENSION: Final = rb"[ \t]*;[ \t]*" + _TOKEN + rb"(?:[ \t]*=[ \t]*(?:" + _VALUE + rb"))?"
_SIZE_LINE: Final = re.compile(rb"([0-9a-fA-F]{1,8})(?:" + _EXTENSION + rb")*\Z")
_ABOUT_CONNECTION: Final = frozenset({b"close", b"keep-alive", b""})
_BODYLESS: Final = frozenset({204, 304})
# A worker's heads are nearly the same every time, so lines once read are remembered; the memory is bounded.
_REMEMBERED: Final = 1024
_LONG: Final = 512
Line = tuple[tuple[bytes, bytes] | None, int]
_NO_LINE: Final[Line] = (None, 0)
_HOP_LINE: Final[Line] = (None, 1)
"""A Connection line that names other headers, which are about this hop then."""
_statuses: Final[dict[bytes, int]] = {}
_lines: Final[dict[bytes, Line]] = {}
_names: Final[dict[bytes, tuple[int, bytes]]] = {}
# Sizes that one token's event has: a dictionary is both the strictest and the fastest hexadecimal parser.
SIZES: Final = {form % size: size for size in range(1, 8192) for form in (b"%x", b"%X")}


class WireError(Exception):
    """The worker's bytes are no HTTP answer; the text says what is wrong."""


class ParsedHead:
    """An answer's head; `length` is a byte count, CHUNKED or UNTIL_CLOSE, `kind` one of the kinds above.

    `coded` says that the body has a content coding; `load` and `stages` are what a sidecar says of load and time.
    """

    __slots__ = ("coded", "headers", "keep_alive", "kind", "length", "load", "request_id", "stages", "status")

    def __init__(self, status: int, keep_alive: bool) -> None:
        self.status = status
        self.headers: HeaderList = []
        self.keep_alive = keep_alive
        self.length = UNTIL_CLOSE
        self.kind = OTHER
        self.coded = False
        self.request_id = b""
        self.load = b""
        self.stages = b""


def parse_head(head: bytes) -> ParsedHead:
    """Read a head without its empty line; headers that must not cross the gateway are left out."""
    lines = head.split(b"\r\n")
    status = _statuses.get(lines[0])
    if status is None:
        status = _status_of(lines[0])
    parsed = ParsedHead(status, lines[0].startswith(b"HTTP/1.1"))
    del lines[0]
    headers = parsed.headers
    hop = False
    for line in lines:
        known = _lines.get(line)
        if known is None:
            if line.startswith(b"content-length: "):
                _read_length(parsed, line[16:])
                continue
            if line == b"transfer-encoding: chunked" and parsed.length == UNTIL_CLOSE:
                parsed.length = CHUNKED
                continue
            known = _read_line(parsed, line)
        pair, kind = known
        if pair is not None:
            headers.append(pair)
            if kind:
                parsed.kind = kind
        elif kind:
            hop = True
    if hop:
        named = _named(lines)
        parsed.headers = [pair for pair in headers if pair[0] not in named]
    if status in _BODYLESS:
        parsed.length = 0
    if parsed.length == UNTIL_CLOSE:
        parsed.keep_alive = False
    return parsed


def all_headers(head: bytes) -> HeaderList:
    """The headers of a head that `parse_head` accepts, less those that are about the hop between worker and gateway."""
    found = []
    lines = head.split(b"\r\n")[1:]
    hop = HOP_BY_HOP | _named(lines)
    for line in lines:
        name, _, value = line.partition(b":")
        rule, low = answer_rule(name)
        if rule in (PASS, DROP) and low not in hop and not low.startswith(OWN_PREFIX):
            found.append((low, value.strip(b" \t")))
    return found


def _named(lines: list[bytes]) -> set[bytes]:
    """What the Connection lines among these name."""
    parts = [line.lower().partition(b":") for line in lines]
    return {token.strip(b" \t") for name, _, value in parts if name == b"connection" for token in value.split(b",")}


def _status_of(line: bytes) -> int:
    found = _STATUS_LINE.match(line)
    if found is None:
        raise WireError("its status line is malformed")
    status = int(found.group(2))
    if len(_statuses) < 256 and len(line) <= _LONG:
        _statuses[line] = status
    return status


def _read_length(parsed: ParsedHead, value: bytes) -> None:
    length = int(value) if value.isdigit() and len(value) <= 15 else -1
    if length < 0 or parsed.length not in (UNTIL_CLOSE, length):
        raise WireError("its length is malformed")
    parsed.length = length


def _read_line(parsed: ParsedHead, line: bytes) -> Line:
    """A header line that was not seen before."""
    name, colon, value = line.partition(b":")
    value = value.strip(b" \t")
    if not colon or _BAD_VALUE.search(value):
        raise WireError("a header is malformed")
    found = _names.get(name)
    if found is None:
        found = answer_rule(name)
        if len(_names) < _REMEMBERED and len(name) <= _LONG:
            _names[name] = found
    rule, low = found
    if rule == LENGTH:
        _read_length(parsed, value)
    elif rule == PASS:
        if low == b"content-encoding":
            parsed.coded = value.lower() != b"identity"
        elif low != b"request-id":  # another every time
            return _remember(line, ((low, value), _kind(value) if low == b"content-type" else 0))
        return (low, value), 0
    elif rule == DROP:
        return _remember(line, (None, 0))
    elif rule == CODING:
        if value.lower() != b"chunked" or parsed.length != UNTIL_CLOSE:
            raise WireError("its transfer coding is not plainly chunked")
        parsed.length = CHUNKED
    elif rule == CONNECTION:
        tokens = {token.strip(b" \t") for token in value.lower().split(b",")}
        parsed.keep_alive = b"close" not in tokens and (parsed.keep_alive or b"keep-alive" in tokens)
        return _NO_LINE if tokens <= _ABOUT_CONNECTION else _HOP_LINE
    elif rule == LOAD:
        parsed.load = value
    elif rule == STAGES:
        parsed.stages = value
    elif rule == REQUEST_ID:
        parsed.request_id = value
    else:
        raise WireError("a header name is malformed")
    return _NO_LINE


def _remember(line: bytes, found: Line) -> Line:
    if len(line) <= _LONG:
        if len(_lines) >= _REMEMBERED:
            _lines.clear()
        _lines[line] = found
    return found


def _kind(content_type: bytes) -> int:
    media = content_type.partition(b";")[0].strip().lower()
    return _MEDIA.get(media, JSON if media.endswith(b"+json") else OTHER)


def walk_chunks(data: bytes) -> tuple[int, int, int]:
    """How far whole chunks reach, how many they are, and the offset behind the end chunk's line (-1: not there yet).

    Where a chunk has an extension the walk ends before it with EXTENDED as the offset: such framing is not passed on.
    """
    size_of = SIZES.get
    total = len(data)
    at = count = 0
    while at < total:
        line_end = data.find(b"\r\n", at, at + 1024)
        if line_end < 0:
            if total - at >= 1024:
                raise WireError("a chunk size line is too long")
            break
        line = data[at:line_end]
        size = size_of(line)
        if size is None:
            size = 0 if line == b"0" else _odd_size(line)
            if size == 0:
                return at, count, line_end + 2
            if data.find(b";", at, line_end) >= 0:
                return at, count, EXTENDED
        end = line_end + 4 + size
        if end > total:
            break
        if not data.startswith(b"\r\n", end - 2):
            raise WireError("a chunk is longer than it says")
        at = end
        count += 1
    return at, count, -1


def without_extensions(data: bytes) -> bytes:
    """Chunks, the last of which may not be whole yet, less the extensions behind their sizes."""
    parts: list[bytes] = []
    at = 0
    while (line_end := data.find(b"\r\n", at)) >= 0:
        size = _odd_size(data[at:line_end])
        if size == 0:
            break
        end = line_end + 4 + size
        parts += (b"%x" % size, data[line_end:end])
        at = end
    parts.append(data[at:])
    return b"".join(parts)


def _size(line: bytes) -> int:
    size = SIZES.get(line)
    return _odd_size(line) if size is None else size


def _odd_size(line: bytes) -> int:
    found = _SIZE_LINE.match(line)
    if found is None:
        raise WireError("a chunk size is malformed")
    return int(found.group(1), 16)


def first_size(data: bytes) -> tuple[int, int]:
    """Size and start of the payload of a chunk that is not whole yet; (-1, 0) where even its size line is not."""
    line_end = data.find(b"\r\n", 0, 1024)
    if line_end < 0:
        return -1, 0
    return _odd_size(data[:line_end]), line_end + 2


def unframe(chunks: bytes) -> bytes:
    """The payload of whole chunks."""
    line_end = chunks.find(b"\r\n")
    if _size(chunks[:line_end]) + line_end + 4 == len(chunks):
        return chunks[line_end + 2 : -2]
    parts = []
    at = 0
    while at < len(chunks):
        line_end = chunks.find(b"\r\n", at)
        size = _size(chunks[at:line_end])
        parts.append(chunks[line_end + 2 : line_end + 2 + size])
        at = line_end + 4 + size
    return b"".join(parts)


def frame(payload: bytes) -> bytes:
    """A payload as one chunk."""
    return b"%x\r\n%b\r\n" % (len(payload), payload)
