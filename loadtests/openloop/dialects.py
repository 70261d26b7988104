"""The four APIs: how a request is written, and what the events of a streamed answer mean."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

Json = Mapping[str, Any]


class Meaning(Enum):
    """What one event is to the one who waits for the answer."""

    OTHER = 0
    CONTENT = 1
    LAST = 2
    ERROR = 3


@dataclass(frozen=True, slots=True)
class Dialect:
    """One API. `done_marker`: whether a stream ends with `data: [DONE]`; if not, with an event that means LAST."""

    name: str
    path: str
    length_field: str
    prompt_opening: bytes
    prompt_closing: bytes
    answer_field: str
    done_marker: bool
    read: Callable[[Json], Meaning]


def _read_chat(event: Json) -> Meaning:
    if event.get("error"):
        return Meaning.ERROR
    for choice in event.get("choices") or ():
        delta = choice.get("delta") or {}
        if (
            delta.get("content")
            or delta.get("reasoning_content")
            or delta.get("reasoning")
            or delta.get("tool_calls")
            or delta.get("refusal")
        ):
            return Meaning.CONTENT
    return Meaning.OTHER


def _read_completion(event: Json) -> Meaning:
    if event.get("error"):
        return Meaning.ERROR
    return Meaning.CONTENT if any(choice.get("text") for choice in event.get("choices") or ()) else Meaning.OTHER


def _read_responses(event: Json) -> Meaning:
    kind = event.get("type", "")
    if kind in ("error", "response.failed") or (event.get("error") and not kind):
        return Meaning.ERROR
    # `incomplete` is the proper end of an answer that met its token limit.
    if kind in ("response.completed", "response.incomplete"):
        return Meaning.LAST
    return Meaning.CONTENT if kind.endswith(".delta") and event.get("delta") else Meaning.OTHER


def _read_messages(event: Json) -> Meaning:
    kind = event.get("type")
    if kind == "error" or (event.get("error") and not kind):
        return Meaning.ERROR
    if kind == "message_stop":
        return Meaning.LAST
    if kind == "content_block_delta":
        delta = event.get("delta") or {}
        if delta.get("text") or delta.get("thinking") or delta.get("partial_json"):
            return Meaning.CONTENT
    return Meaning.OTHER


_CHAT_OPENING = b'"messages":[{"role":"user","content":"'
_CHAT = Dialect(
    "chat", "/v1/chat/completions", "max_tokens", _CHAT_OPENING, b'"}]', "choices", done_marker=True, read=_read_chat
)
_COMPLETIONS = Dialect(
    "completions", "/v1/completions", "max_tokens", b'"prompt":"', b'"', "choices", done_marker=True,
    read=_read_completion,
)  # fmt: skip
_RESPONSES = Dialect(
    "responses", "/v1/responses", "max_output_tokens", b'"input":"', b'"', "output", done_marker=False,
    read=_read_responses,
)  # fmt: skip
_MESSAGES = Dialect(
    "messages", "/v1/messages", "max_tokens", _CHAT_OPENING, b'"}]', "content", done_marker=False, read=_read_messages
)

DIALECTS = {dialect.name: dialect for dialect in (_CHAT, _COMPLETIONS, _RESPONSES, _MESSAGES)}


def dialect_of(path: str) -> Dialect:
    """The API that a path speaks, by its ending; ValueError for any other."""
    bare = path.partition("?")[0]
    for dialect in DIALECTS.values():  # chat stands before completions, whose ending it shares
        if bare.endswith(dialect.path.removeprefix("/v1")):
            return dialect
    raise ValueError(f"{path}: give --dialect ({', '.join(DIALECTS)}), the path does not tell")
