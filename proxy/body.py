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
from tailrace.proxy.skim import LATER, LONGEST, SHORTEST, skim

_decode: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_KEY: Final = re.compile(rb'[ \t\r\n]*("(?:[^"\\]|\\.)*")[ \t\r\n]*:[ \t\r\n]*')
_NEXT: Final = re.compile(rb"[ \t\r\n]*([,}])")
_OPEN: Final = re.compile(rb"[ \t\r\n]*\{")


MAX_FIELDS: Final = 1000
_COPIED: Final = 4096


Snapshot = dict[str, bytes | None] | None


def invalid(message: str, param: str | None = None, code: str = "invalid_request_error") -> Reject:
    """A 400 in the API's usual form."""
    return Reject(400, code, message, param=param, kind="bad_request")


class JsonBody:
    """The body of one request; raises Reject(400) where it is no JSON object or has a key twice."""

    __slots__ = ("_edits", "_received", "_skimmed", "raw")

    def __init__(self, raw: bytes, max_depth: int) -> None:
        self.raw = raw
        self._edits: dict[str, bytes | None] | None = None
        self._received: dict[str, msgspec.Raw] | None = None
        self._skimmed: dict[str, Any] | None = None
        size = len(raw)
        if SHORTEST <= size <= LONGEST:
            self._skimmed = skim(raw)
        if self._skimmed is None:
            if size > LARGE and crowded(raw):
                raise _too_many()
            self._received = _read(raw)
        if too_deep(raw, max_depth):
            raise invalid(f"The request body is nested deeper than {max_depth} levels.")
        if len(self._names()) > MAX_FIELDS:
            raise _too_many()
        received = self._received
        if received is None:
            return
        if not raw.isascii():
            _refuse_other_encodings(raw)
        # Where the fields fill the body to the byte, there is no room for a key that came twice: each adds two quotes,
        # a colon and a comma, the object itself two braces less the last comma.
        if 4 * len(received) + 1 + len("".join(received)) + _length_of(received.values(), size) != size:
            _refuse_duplicates(raw, received)

    def has(self, name: str) -> bool:
        """Whether there is such a field."""
        if self._edits is not None and name in self._edits:
            return self._edits[name] is not None
        return name in self._names()

    def names(self) -> list[str]:
        """The names of all fields, those that were added included."""
        names = list(self._names())
        if self._edits is not None:
            names = [name for name in names if self._edits.get(name, b"") is not None]
            names += [name for name, value in self._edits.items() if value is not None and name not in names]
        return names

    def written(self, name: str) -> memoryview | None:
        """The JSON text of a field's value, None where it is absent."""
        if self._edits is not None and name in self._edits:
            value = self._edits[name]
            return None if value is None else memoryview(value)
        if self._received is None and name not in self._names():
            return None
        raw = self._fields().get(name)
        return None if raw is None else memoryview(raw)

    def spelled(self, name: str) -> bytes | None:
        """A copy of the JSON text of a short value, None where the field is absent."""
        received = self._received
        if self._edits is None and received is not None:
            raw = received.get(name)
            return None if raw is None else bytes(raw)
        written = self.written(name)
        return None if written is None else bytes(written)

    def get(self, name: str) -> Any:
        """The decoded value of a field, None where it is absent; raises Reject(400) where it has none."""
        if self._skimmed is not None and (self._edits is None or name not in self._edits):
            value = self._skimmed.get(name)
            if value is not LATER:
                return value
        written = self.written(name)
        if written is None:
            return None
        try:
            return orjson.loads(written)
        except orjson.JSONDecodeError:
            # Finding the fields does not look into strings for their coding, nor at the size of numbers.
            raise invalid(f"'{name}' is no value that JSON can have.", name) from None

    def text(self, name: str) -> str | None:
        """The value of a string field; raises Reject(400) where it is something else, None where it is absent."""
        value = self.get(name)
        if value is None and not self.has(name):
            return None
        if not isinstance(value, str):
            raise invalid(f"'{name}' must be a string.", name)
        return value

    def flag(self, name: str) -> bool:
        """Whether a field is literally true."""
        if self._skimmed is not None:
            return self.get(name) is True
        return self.spelled(name) == b"true"

    def edit(self, name: str, value: bytes | None) -> None:
        """Give a top-level field another JSON value, or none at all."""
        if self._edits is None:
            self._edits = {}
        self._edits[name] = value

    def snapshot(self) -> Snapshot:
        """What `restore` needs to undo later edits."""
        return None if self._edits is None else dict(self._edits)

    def restore(self, snapshot: Snapshot) -> None:
        """Undo the edits made since."""
        self._edits = snapshot

    @property
    def skimmed(self) -> bool:
        """Whether `get` costs less than `written` as long as nothing has asked for that."""
        return self._skimmed is not None

    @property
    def edited(self) -> bool:
        """Whether `render` differs from `raw`."""
        return self._edits is not None

    def render(self, also: Mapping[str, bytes] | None = None) -> bytes:
        """The bytes for the worker: those received, but for the fields edited; `also` edits for this time only."""
        if not self._edits and not also:
            return self.raw
        edits: dict[str, bytes | None] = {**(self._edits or {}), **(also or {})}
        names = self._names()
        added = [name for name, value in edits.items() if value is not None and name not in names]
        more = [orjson.dumps(name) + b":" + (edits[name] or b"") for name in added]
        if len(added) == len(edits):
            end = self.raw.rindex(b"}")
            return b"".join((self.raw[:end], b"," if names else b"", b",".join(more), self.raw[end:]))
        kept: list[bytes] = []
        for name, entry, value_at in self._entries():
            if name not in edits:
                kept.append(entry)
            elif (value := edits[name]) is not None:
                kept.append(entry[:value_at] + value)
        return b"{" + b",".join(kept + more) + b"}"

    def _names(self) -> Mapping[str, Any]:
        """A mapping with the names of the fields that were received."""
        return self._fields() if self._skimmed is None else self._skimmed

    def _fields(self) -> dict[str, msgspec.Raw]:
        if self._received is None:
            self._received = _read(self.raw)
        return self._received

    def _entries(self) -> list[tuple[str, bytes, int]]:
        """Each entry of the received object: key, bytes from key to value, offset of the value in them."""
        raw, received = self.raw, self._fields()
        opening = _OPEN.match(raw)
        at = opening.end() if opening else 1
        entries = []
        while key := _KEY.match(raw, at):
            name = orjson.loads(key.group(1))
            end = key.end() + len(memoryview(received[name]))
            entries.append((name, raw[key.start() : end], key.end() - key.start()))
            following = _NEXT.match(raw, end)
            at = following.end() if following else len(raw)
        return entries


def _read(raw: bytes) -> dict[str, msgspec.Raw]:
    """The fields of an object, each a view of its text; raises Reject(400)."""
    try:
        return _decode(raw)
    except msgspec.ValidationError:
        raise invalid("The request body must be a JSON object.") from None
    except msgspec.DecodeError as error:
        raise invalid(f"The request body is not valid JSON: {_reason(error)}.") from None
    except UnicodeDecodeError:
        raise invalid("The request body is not valid UTF-8.") from None
    except RecursionError:
        raise invalid("The request body is nested deeper than it can be read.") from None


def _refuse_duplicates(raw: bytes, fields: dict[str, msgspec.Raw]) -> None:
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
