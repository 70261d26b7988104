"""The few requests that the play itself makes, beside the load."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson

LIMIT = 5.0


async def ask(at: str, path: str, body: object = None, *, headers: str = "", limit: float = LIMIT) -> tuple[int, bytes]:
    """Status and body of a GET, or of a POST where there is a body; OSError where there is no answer."""
    host, _, port = at.rpartition(":")
    content = b"" if body is None else orjson.dumps(body)
    head = (
        f"{'GET' if body is None else 'POST'} {path} HTTP/1.1\r\nhost: {at}\r\nconnection: close\r\n{headers}"
        f"content-type: application/json\r\ncontent-length: {len(content)}\r\n\r\n"
    )
    try:
        async with asyncio.timeout(limit):
            reader, writer = await asyncio.open_connection(host, int(port))
            try:
                writer.write(head.encode() + content)
                answer = await reader.read()
            finally:
                writer.close()
    except TimeoutError:
        raise OSError(f"{at}{path}: no answer within {limit:g} s") from None
    first, _, rest = answer.partition(b"\r\n\r\n")
    if not first.startswith(b"HTTP/1."):
        raise OSError(f"{at}{path}: no answer")
    return int(first[9:12]), _dechunked(rest) if b"chunked" in first.lower() else rest


async def ask_json(at: str, path: str, body: object = None) -> Any:
    """The JSON of a good answer."""
    status, content = await ask(at, path, body)
    if status != 200:
        raise OSError(f"{at}{path}: {status} {content[:200]!r}")
    return orjson.loads(content)


async def answers(at: str, path: str, limit: float = 1.0) -> bool:
    """Whether there is a good answer in time."""
    try:
        return (await ask(at, path, limit=limit))[0] == 200
    except OSError:
        return False


def _dechunked(body: bytes) -> bytes:
    pieces = []
    while body:
        size, _, rest = body.partition(b"\r\n")
        length = int(size.partition(b";")[0] or b"0", 16)
        if not length:
            break
        pieces.append(rest[:length])
        body = rest[length + 2 :]
    return b"".join(pieces)
