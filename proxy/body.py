"""A JSON request body as bytes with named top-level fields: read without building the rest, edited by splicing.

msgspec finds the fields and validates the JSON in one pass, leaving every value as a view of its bytes. What is not
edited reaches the worker byte for byte: spacing, number text, escapes and unknown fields included.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
import orjson
from tailrace.proxy.crowd import LARGE, crowded
from tailrace.proxy.depth import too_deep
from tailrace.proxy.fault import Reject

_decode: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_KEY: Final = re.compile(rb'[ \t\r\n]*("(?:[^"\\]|\\.)*")[ \t\r\n]*:[ \t\r\n]*')
_NEXT: Final = re.compile(rb"[ \t\r\n]*([,}])")
_OPEN: Final = re.compile(rb"[ \t\r\n]*\{")


MAX_FIELDS: Final = 1000
_COPIED: Final = 4096


Snapshot = tuple[dict[str, msgspec.Raw], dict[str, bytes | None] | None]


def invalid(message: str, param: str | None = None, code: str = "invalid_request_error") -> Reject:
    """A 400 in the API's usual form."""
    return Reject(400, code, message, param=param, kind="bad_request")


class JsonBody:
    """The body of one request; raises Reject(400) where it is no JSON object or has a key twice."""

    __slots__ = ("_edits", "fields", "raw")

    def __init__(self, raw: bytes, max_depth: int) -> None:
        self.raw = raw
        self._edits: dict[str, bytes | None] | None = None
        if len(raw) > LARGE and crowded(raw):
            raise _too_many()
        try:
            self.fields: dict[str, msgspec.Raw] = _decode(raw)
        except msgspec.ValidationError:
            raise invalid("The request body must be a JSON object.") from None
        except msgspec.DecodeError as error:
            raise invalid(f"The request body is not valid JSON: {_reason(error)}.") from None
        except UnicodeDecodeError:
            raise invalid("The request body is not valid UTF-8.") from None
        except RecursionError:
            raise invalid(f"The request body is nested deeper than {max_depth} levels.") from None
        if too_deep(raw, max_depth):
            raise invalid(f"The request body is nested deeper than {max_depth} levels.")
        # Where the fields fill the body to the byte, there is no room for a key that came twice: each adds two quotes,
        # a colon and a comma, the object itself two braces less the last comma.
        fields = self.fields
        if len(fields) > MAX_FIELDS:
            raise _too_many()
        if not raw.isascii():
            _refuse_other_encodings(raw)
        if 4 * len(fields) + 1 + len("".join(fields)) + _length_of(fields.values(), len(raw)) != len(raw):
            self._refuse_duplicates()

    def get(self, name: str) -> Any:
        """The decoded value of a field, None where it is absent; raises Reject(400) where it has none."""
        raw = self.fields.get(name)
        if raw is None:
            return None
        try:
            return orjson.loads(memoryview(raw))
        except orjson.JSONDecodeError:
            # Finding the fields does not look into strings for their coding, nor at the size of numbers.
            raise invalid(f"'{name}' is no value that JSON can have.", name) from None

    def text(self, name: str) -> str | None:
        """The value of a string field; raises Reject(400) where it is something else, None where it is absent."""
        value = self.get(name)
        if value is None and name not in self.fields:
            return None
        if not isinstance(value, str):
            raise invalid(f"'{name}' must be a string.", name)
        return value

    def flag(self, name: str) -> bool:
        """Whether a field is literally true."""
        raw = self.fields.get(name)
        return raw is not None and bytes(raw) == b"true"

    def edit(self, name: str, value: bytes | None) -> None:
        """Give a top-level field another JSON value, or none at all."""
        if self._edits is None:
            self._edits = {}
        self._edits[name] = value
        if value is None:
            self.fields.pop(name, None)
        else:
            self.fields[name] = msgspec.Raw(value)

    def snapshot(self) -> Snapshot:
        """What `restore` needs to undo later edits."""
        return dict(self.fields), None if self._edits is None else dict(self._edits)

    def restore(self, snapshot: Snapshot) -> None:
        """Undo the edits made since."""
        self.fields, self._edits = snapshot

    @property
    def edited(self) -> bool:
        """Whether `render` differs from `raw`."""
        return self._edits is not None

    def render(self, also: Mapping[str, bytes] | None = None) -> bytes:
        """The bytes for the worker: those received, but for the fields edited; `also` edits for this time only."""
        if not self._edits and not also:
            return self.raw
        edits: dict[str, bytes | None] = {**(self._edits or {}), **(also or {})}
        kept: list[bytes] = []
        for name, entry, value_at in self._entries():
            if name not in edits:
                kept.append(entry)
            elif (value := edits.pop(name)) is not None:
                kept.append(entry[:value_at] + value)
        kept += [orjson.dumps(name) + b":" + value for name, value in edits.items() if value is not None]
        return b"{" + b",".join(kept) + b"}"

    def _entries(self) -> list[tuple[str, bytes, int]]:
        """Each entry of the received object: key, bytes from key to value, offset of the value in them."""
        raw, original = self.raw, _decode(self.raw)
        opening = _OPEN.match(raw)
        at = opening.end() if opening else 1
        entries = []
        while key := _KEY.match(raw, at):
            name = orjson.loads(key.group(1))
            end = key.end() + len(memoryview(original[name]))
            entries.append((name, raw[key.start() : end], key.end() - key.start()))
            following = _NEXT.match(raw, end)
            at = following.end() if following else len(raw)
        return entries

    def _refuse_duplicates(self) -> None:
        raw, fields = self.raw, self.fields
        opening = _OPEN.match(raw)
        at = opening.end() if opening else 1
        seen: set[str] = set()
        while key := _KEY.match(raw, at):
            name = orjson.loads(key.group(1))
            value = bytes(memoryview(fields[name]))
            end = key.end() + len(value)
            following = _NEXT.match(raw, end)
            if name in seen or following is None or raw[key.end() : end] != value:
                raise invalid(f"The request body has the key '{name[:64]}' twice.", name[:64])
            seen.add(name)
            at = following.end()


def _length_of(values: Iterable[msgspec.Raw], most: int) -> int:
    """How long they are together; the copy that tells it for short ones costs less than a view of each."""
    if most <= _COPIED:
        return len(b"".join(values))
    return sum([len(memoryview(value)) for value in values])


def _too_many() -> Reject:
    return invalid(f"The request body has more than {MAX_FIELDS} fields.")


def _refuse_other_encodings(raw: bytes) -> None:
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for at in range(0, len(raw), LARGE):
            decoder.decode(raw[at : at + LARGE])
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        raise invalid("The request body is not valid UTF-8.") from None


def _reason(error: msgspec.DecodeError) -> str:
    return str(error).removeprefix("JSON is malformed: ")
