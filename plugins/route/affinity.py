"""What of a call says whose cache it may find: its session, or how its prompt begins.

A key is a checksum of bytes as they were sent, so that it is the same in every process, and costs no parsing. All turns
of a conversation have the same key: they agree in the system prompt and the first message of the user. Of these only
the first bytes count, so that calls with one long beginning share it; the second key tells their conversations apart.
What a client sends cannot name a worker: a key only leads to one of those that may get the call.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final
from zlib import crc32

from tailrace.proxy.fault import Reject

if TYPE_CHECKING:
    from tailrace.proxy.call import Call

NONE: Final = -1
"""No key."""
NOTHING: Final = 0
PREFIX: Final = 1
CONVERSATION: Final = 2
SESSION: Final = 3
SHORT: Final = 1024
"""Bytes of a request, below which there is little that could be found: 250 tokens with all its fields."""
_LOOK: Final = 16384
"""Bytes in which the first message of the user is looked for."""
_TELLING: Final = 1024
"""Bytes of that message that tell one conversation from another."""
_NEXT: Final = 64
"""Bytes from its end in which the answer to it begins, if there has been one."""
_FIELDS: Final[dict[str, tuple[bytes, bytes]]] = {
    "chat": (b'"messages"', b""),
    "completions": (b'"prompt"', b""),
    "responses": (b'"input"', b'"instructions"'),
    "messages": (b'"messages"', b'"system"'),
}
"""By route, where the prompt is, and what stands before it although it is a field of its own."""
_TEXT: Final = re.compile(rb'"[a-z]+"\s*:\s*\[?\s*"')
"""A field up to the text that is its value, or the first of several."""
_SAID: Final = re.compile(
    rb'"role":\s*"user"\s*,\s*"content":\s*(?:\[\s*\{\s*"type":\s*"(?:input_)?text"\s*,\s*"text":\s*)?"'
)
"""From the role of a message to its text; COMPACT is what is found most of the time."""
_COMPACT: Final = b'"role":"user","content":"'
_ROLE: Final = b'"role":"user"'
_SPACED: Final = b'"role": "user"'


class Affinity:
    """Reads keys as the settings say; a key that there is no reason for is NONE."""

    __slots__ = ("_fields", "_headers", "_prefix")

    def __init__(self, prefix: int, headers: Sequence[str], fields: Sequence[str]) -> None:
        self._prefix = prefix
        self._headers = tuple([name.lower().encode() for name in headers])
        self._fields = tuple(fields)

    def keys(self, call: Call) -> tuple[int, int, int]:
        """Where a call should go, where else, and what says so."""
        first = second = NONE
        by = NOTHING
        if self._prefix and len(call.raw) >= SHORT:
            at = _FIELDS.get(call.route.name)
            if at is not None:
                first, second, by = prompt_keys(call.raw, at[0], at[1], self._prefix)
        session = self._session(call)
        if session:
            key = crc32(session)
            return key, first if first != NONE else crc32(b"else", key), SESSION
        return first, second, by

    def _session(self, call: Call) -> bytes:
        for header in self._headers:
            value = call.head.get(header)
            if value:
                return value
        body = call.body
        if body is not None:
            for name in self._fields:
                if body.has(name):
                    try:
                        found = body.get(name)
                    except Reject:
                        continue  # what is no text names no session; whoever needs the field says so
                    if isinstance(found, str) and found:
                        return found.encode("utf-8", "surrogatepass")
        return b""


def prompt_keys(raw: bytes, field: bytes, before: bytes, most: int) -> tuple[int, int, int]:
    """The key of how a prompt begins, one of the conversation, and whether that went on before."""
    start = raw.find(field)
    if start < 0:
        return NONE, NONE, NOTHING
    seed = _other(raw, before, most) if before else 0
    after = start + len(field) + 1
    role = _SPACED if raw[after : after + 1].isspace() else _ROLE
    user = raw.find(role, start, start + _LOOK)
    if user < 0:
        key = crc32(raw[start : _text_end(_TEXT, raw, start, start + most) or start + most], seed)
        return key, crc32(b"else", key), PREFIX
    if raw.startswith(_COMPACT, user):
        end = _quote(raw, user + len(_COMPACT), user + _TELLING)
    else:
        # Where a message has its content before its role, the role is the end of it.
        end = _text_end(_SAID, raw, user, user + _TELLING) or user + len(role)
    by = PREFIX if raw.find(b'"assistant"', end, end + _NEXT) < 0 else CONVERSATION
    if end <= start + most:
        key = crc32(raw[start:end], seed)
        return key, crc32(b"else", key), by
    key = crc32(raw[start : start + most], seed)
    return key, crc32(raw[user:end], key), by


def _other(raw: bytes, field: bytes, most: int) -> int:
    """The checksum of a field that stands before the prompt, as far as it counts."""
    at = raw.find(field)
    return 0 if at < 0 else crc32(raw[at : _text_end(_TEXT, raw, at, at + most) or at + most])


def _text_end(lead: re.Pattern[bytes], raw: bytes, start: int, most: int) -> int:
    """Where the text ends to which `lead` leads from `start`, `most` at the latest; 0 where there is none."""
    led = lead.match(raw, start, most)
    return 0 if led is None else _quote(raw, led.end(), most)


def _quote(raw: bytes, at: int, most: int) -> int:
    """Where the text ends in which `at` is."""
    while True:
        at = raw.find(b'"', at, most)
        if at < 0:
            return most
        slash = at - 1
        while raw[slash] == 92:
            slash -= 1
        if (at - slash) % 2:
            return at
        at += 1
