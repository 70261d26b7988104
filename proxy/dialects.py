"""What counts as content, as an end and as an error in each API's stream: one table per dialect.

`judge` reads one whole event. It sees every event until an attempt is committed; afterwards only those in which one
of the dialect's `needles` occurs. A needle holds a quote or stands for a whole payload, so text that a model
generates cannot fake it: quotes inside JSON strings are escaped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from tailrace.proxy.sse import Event

OVER: Final = b"[DONE]"
"""The payload that ends chat and completions; elsewhere an engine's slip, at which SDKs stop reading nevertheless."""


class Sign(IntEnum):
    """What one event means for the attempt it belongs to."""

    NOTHING = 0  # comment, prelude, usage: may be held back
    CONTENT = 1  # text, reasoning, tool call, refusal
    FINISH = 2  # a choice ended with a reason
    DONE = 3  # the terminal event
    ERROR = 4
    ABORTED = 5  # a finish that says that the engine gave up


@dataclass(frozen=True, slots=True)
class Dialect:
    """One API's way of streaming; `needles` are always four, so that the relay can test them unrolled. Behind
    `mark` comes the text that an event brings.

    `conclusive` says that the terminal event itself vouches for a whole answer, be it an empty one.
    """

    name: str
    judge: Callable[[Event], Sign]
    needles: tuple[bytes, bytes, bytes, bytes]
    mark: bytes
    anthropic: bool = False
    conclusive: bool = False
    heartbeat: bytes = b": heartbeat\n\n"

    def silent(self, data: bytes) -> bool:
        """Whether none of the needles is there."""
        # `find`, because `in` first tries the needle as a number, by way of an exception.
        first, second, third, fourth = self.needles
        return data.find(first) < 0 and data.find(second) < 0 and data.find(third) < 0 and data.find(fourth) < 0


@dataclass(frozen=True, slots=True)
class FiveNeedles(Dialect):
    """One that has a needle more than the relay tests unrolled."""

    fifth: bytes = b""

    def silent(self, data: bytes) -> bool:
        """Whether none of the needles is there."""
        return data.find(self.fifth) < 0 and Dialect.silent(self, data)


def judge_chat(event: Event) -> Sign:
    """Chat and text completion chunks."""
    data = event.data
    if not data:
        return Sign.NOTHING
    if data == OVER:
        return Sign.DONE
    body = event.json()
    if not isinstance(body, dict):
        return Sign.NOTHING
    if _tells_error(body):
        return Sign.ERROR
    sign = Sign.NOTHING
    choices = body.get("choices")
    for choice in choices if isinstance(choices, list) else ():
        if isinstance(choice, dict):
            sign = max(sign, _judge_choice(choice))
    return sign


def _judge_choice(choice: dict[str, Any]) -> Sign:
    reason = choice.get("finish_reason")
    if reason in ("abort", "error"):
        return Sign.ABORTED
    if reason:
        return Sign.FINISH
    delta = choice.get("delta")
    if isinstance(delta, dict):
        return Sign.CONTENT if any(value for key, value in delta.items() if key != "role") else Sign.NOTHING
    return Sign.CONTENT if choice.get("text") else Sign.NOTHING


def judge_messages(event: Event) -> Sign:
    """Anthropic message events."""
    body = event.json()
    if not isinstance(body, dict):
        return Sign.NOTHING
    if _tells_error(body):
        return Sign.ERROR
    match body.get("type"):
        case "message_stop":
            return Sign.DONE
        case "message_delta":
            reason = _object(body.get("delta")).get("stop_reason", "")
            # vLLM's spelling of a request that it gave up: a reason of null, and then an end as if all were well.
            return Sign.ABORTED if reason in (None, "abort") else Sign.FINISH if reason else Sign.NOTHING
        case "content_block_delta":
            delta = _object(body.get("delta"))
            return Sign.CONTENT if any(value for key, value in delta.items() if key != "type") else Sign.NOTHING
        case "content_block_start":
            block = _object(body.get("content_block"))
            return Sign.CONTENT if block.get("type") == "tool_use" or block.get("text") else Sign.NOTHING
    return Sign.NOTHING


def _tells_error(body: dict[str, Any]) -> bool:
    """Whether an event is an error: one that holds an error object, or that is one, in either spelling of engines."""
    return bool(body.get("error")) or body.get("type") == "error" or body.get("object") == "error"


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def judge_responses(event: Event) -> Sign:
    """Events of the Responses API."""
    body = event.json()
    if not isinstance(body, dict):
        return Sign.NOTHING
    if _tells_error(body):
        return Sign.ERROR
    match body.get("type"):
        case "response.failed":
            return Sign.ERROR
        case "response.completed" | "response.incomplete":
            return Sign.DONE
        case str(kind) if kind.endswith(".delta") and body.get("delta"):
            return Sign.CONTENT
    return Sign.NOTHING


_CHAT_NEEDLES: Final = (b'_reason":"', b'_reason": "', b'"error"', OVER)
# Where it ends nothing, it is looked for with its line's end, which no text of a model has behind it.
_STRAY: Final = OVER + b"\n"

CHAT: Final = Dialect("chat", judge_chat, _CHAT_NEEDLES, b'"content":"')
# A transcription need not have a finish reason, nor a word.
AUDIO: Final = Dialect("chat", judge_chat, _CHAT_NEEDLES, b'"content":"', conclusive=True)
COMPLETIONS: Final = Dialect("completions", judge_chat, _CHAT_NEEDLES, b'"text":"')
MESSAGES: Final = Dialect(
    "messages",
    judge_messages,
    (b'"message_stop"', b'"message_delta"', b'"error"', _STRAY),
    b'"text":"',
    anthropic=True,
    heartbeat=b'event: ping\ndata: {"type": "ping"}\n\n',
)
RESPONSES: Final = FiveNeedles(
    "responses",
    judge_responses,
    (b'"response.completed"', b'"response.incomplete"', b'"error"', b'"response.failed"'),
    b'"delta":"',
    conclusive=True,
    fifth=_STRAY,
)
