"""A worker's answers as bytes, for scripts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson


def chunked(data: bytes) -> bytes:
    """One chunk of the chunked framing; of no data it is the end."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def answer(status: int, body: bytes, content_type: str = "application/json", headers: bytes = b"") -> bytes:
    """A whole answer with a length; `headers` are further lines, each with its line end."""
    return b"HTTP/1.1 %d Scripted\r\ncontent-type: %b\r\ncontent-length: %d\r\n%b\r\n%b" % (
        status,
        content_type.encode(),
        len(body),
        headers,
        body,
    )


def json_answer(body: Any, status: int = 200, headers: bytes = b"") -> bytes:
    """A whole JSON answer."""
    return answer(status, orjson.dumps(body), headers=headers)


def sse_head(headers: bytes = b"") -> bytes:
    """The head of a chunked event stream."""
    return (
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n%btransfer-encoding: chunked\r\n\r\n"
        % headers
    )


def event(data: Any, name: str = "") -> bytes:
    """One server-sent event; text and bytes stand as they are, anything else becomes JSON."""
    if isinstance(data, str):
        data = data.encode()
    elif not isinstance(data, bytes):
        data = orjson.dumps(data)
    return (b"event: %b\n" % name.encode() if name else b"") + b"data: %b\n\n" % data


def sse_answer(chunks: Iterable[bytes], headers: bytes = b"") -> bytes:
    """A whole event stream: head, one chunk for each piece of bytes, and the end of the framing."""
    return sse_head(headers) + b"".join([chunked(chunk) for chunk in chunks if chunk]) + chunked(b"")


def chat_chunk(text: str | None = None, *, finish: str | None = None, index: int = 0, **delta: Any) -> bytes:
    """One event of a chat stream in vLLM's spelling."""
    if text is not None:
        delta["content"] = text
    choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish}
    return event(
        {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    )


def stream_of(texts: Iterable[str]) -> list[bytes]:
    """The events of a chat stream with these pieces of text, from the role to `[DONE]`."""
    return [
        chat_chunk("", role="assistant"),
        *[chat_chunk(text) for text in texts],
        chat_chunk(finish="stop"),
        event("[DONE]"),
    ]


def chat_answer(text: str) -> dict[str, Any]:
    """The body of a unary chat answer in vLLM's spelling."""
    message = {"role": "assistant", "content": text, "refusal": None, "reasoning": None}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": "stop", "token_ids": None}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
    }
