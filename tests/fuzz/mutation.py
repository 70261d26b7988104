"""Bytes made wrong at random, in the ways in which HTTP, JSON and event streams go wrong."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

TOKENS = (
    *(b"\r\n", b"\n", b"\r", b"\r\n\r\n", b"\n\n", b"\0", b"\t", b" ", b":", b";", b",", b'"', b"\\", b"{", b"}", b"["),
    *(b"\xff", b"\xc3", b"\xef\xbb\xbf", b"\\ud800", b"null", b"true", b"1e999", b"-1", b"[" * 200, b'{"a":' * 200),
    *(
        b"HTTP/1.1",
        b"HTTP/1.0",
        b"HTTP/2.0",
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"PRI * HTTP/2.0",
    ),
    *(b"GET ", b"POST ", b"OPTIONS * ", b"CONNECT x:1 ", b"/v1/models", b"/../", b"%00", b"?a=b", b"#", b"http://x/"),
    *(b"Content-Length: 5\r\n", b"Content-Length: 0\r\n", b"content-length: 99999999999999999999\r\n"),
    *(b"Content-Length: +5\r\n", b"Content-Length: 1, 1\r\n", b"Content-Length : 3\r\n", b"content-length: 0x5\r\n"),
    *(
        b"Transfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: chunked, chunked\r\n",
        b"transfer-encoding: xchunked\r\n",
    ),
    *(b"Transfer-Encoding : chunked\r\n", b"Transfer-Encoding:\x0bchunked\r\n", b"Connection: close\r\n"),
    *(b"Connection: keep-alive, upgrade\r\n", b"Upgrade: websocket\r\n", b"Expect: 100-continue\r\n", b"Host: a\r\n"),
    *(b"content-encoding: gzip\r\n", b"content-encoding: zstd\r\n", b"x-tailrace-attempt: 9\r\n", b" folded\r\n"),
    *(b"0\r\n\r\n", b"5\r\nhello\r\n", b"ffffffff\r\n", b"-1\r\n", b"5;ext=1\r\n", b"00000000005\r\n", b"0x5\r\n"),
    *(b"data: [DONE]\n\n", b"data: {\n\n", b": comment\n\n", b"event: error\n", b'data: {"error":{"message":"x"}}\n\n'),
    *(b'"finish_reason":"stop"', b'"finish_reason":"abort"', b'"stream":true', b'"model":"m"', b'"model":7', b'"n":0'),
)


def mutated(random_: random.Random, data: bytes, others: Sequence[bytes] = (b"",), most: int = 4) -> bytes:
    """The bytes with some things done to them; `others` is what they may be joined with."""
    for _ in range(random_.randint(1, most)):
        how = random_.choice(_WAYS)
        data = how(random_, data, random_.choice(others))
    return data


def pieces(random_: random.Random, data: bytes) -> list[bytes]:
    """The bytes as they might arrive: at once, in a few pieces or, where they are short, one by one."""
    way = random_.random()
    if way < 0.4 or len(data) < 2:
        return [data]
    if way < 0.5 and len(data) < 400:
        return [data[at : at + 1] for at in range(len(data))]
    cuts = sorted(random_.randrange(len(data)) for _ in range(random_.randint(1, 6)))
    return [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True) if start < end]


def _span(random_: random.Random, data: bytes) -> tuple[int, int]:
    start = random_.randint(0, len(data))
    return start, min(len(data), start + int(random_.expovariate(1 / 12)) + 1)


def _replaced(random_: random.Random, data: bytes, _: bytes) -> bytes:
    at = random_.randint(0, max(0, len(data) - 1))
    return data[:at] + bytes([random_.randrange(256)]) + data[at + 1 :]


def _without(random_: random.Random, data: bytes, _: bytes) -> bytes:
    start, end = _span(random_, data)
    return data[:start] + data[end:]


def _doubled(random_: random.Random, data: bytes, _: bytes) -> bytes:
    start, end = _span(random_, data)
    return data[:end] + data[start:]


def _with_token(random_: random.Random, data: bytes, _: bytes) -> bytes:
    at = random_.randint(0, len(data))
    return data[:at] + random_.choice(TOKENS) + data[at:]


def _with_line(random_: random.Random, data: bytes, _: bytes) -> bytes:
    """A token where a line begins, which is where most of them mean something."""
    starts = [at + 1 for at in range(len(data)) if data[at] == 10]
    at = random_.choice(starts) if starts else 0
    return data[:at] + random_.choice(TOKENS) + data[at:]


def _without_line(random_: random.Random, data: bytes, _: bytes) -> bytes:
    lines = data.split(b"\n")
    del lines[random_.randrange(len(lines))]
    return b"\n".join(lines)


def _cut(random_: random.Random, data: bytes, _: bytes) -> bytes:
    return data[: random_.randint(0, len(data))]


def _joined(random_: random.Random, data: bytes, other: bytes) -> bytes:
    return data[: random_.randint(0, len(data))] + other[random_.randint(0, len(other)) :]


def _followed(_: random.Random, data: bytes, other: bytes) -> bytes:
    return data + other


def _other_number(random_: random.Random, data: bytes, _: bytes) -> bytes:
    digits = [at for at in range(len(data)) if 48 <= data[at] <= 57]
    if not digits:
        return data
    at = random_.choice(digits)
    return data[:at] + random_.choice((b"0", b"9", b"-1", b"10", b"4096", b"2147483648")) + data[at + 1 :]


_Way = Callable[[random.Random, bytes, bytes], bytes]
_WAYS: tuple[_Way, ...] = (
    *(_replaced, _without, _doubled, _with_token, _with_line, _with_line, _without_line, _cut, _joined, _followed),
    _other_number,
)
