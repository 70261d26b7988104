"""A multipart form read in place: the small fields the gateway needs, while the bytes stay as they are."""

from __future__ import annotations

import re

from tailrace.proxy.body import invalid

_BOUNDARY = re.compile(rb';\s*boundary=(?:"((?:[^"\\]|\\.)+)"|([^\s;"]+))', re.IGNORECASE)
_NAME = re.compile(rb';\s*name="((?:[^"\\]|\\.)*)"|;\s*name=([^\s;"]+)', re.IGNORECASE)
MAX_PARTS = 64
MAX_PART_HEAD = 8192
MAX_FIELD = 64 * 1024


class Form:
    """Where each named part of a form lies in its bytes."""

    __slots__ = ("raw", "spans")

    def __init__(self, raw: bytes, spans: dict[bytes, tuple[int, int]]) -> None:
        self.raw = raw
        self.spans = spans

    @classmethod
    def read(cls, raw: bytes, content_type: bytes) -> Form:
        """Find the parts; raises Reject(400 or 415) where the body is no such form."""
        if content_type.partition(b";")[0].strip().lower() != b"multipart/form-data":
            raise invalid("The request body must be multipart/form-data.", code="unsupported_media_type")
        found = _BOUNDARY.search(content_type)
        boundary = (found.group(1) or found.group(2)) if found else b""
        if not boundary or len(boundary) > 200:
            raise invalid("The form has no usable boundary.")
        delimiter = b"--" + boundary
        at = 0 if raw.startswith(delimiter) else raw.find(b"\r\n" + delimiter)
        if at < 0:
            raise invalid("The form does not begin with its boundary.")
        at += len(delimiter) + (0 if raw.startswith(delimiter) else 2)
        spans: dict[bytes, tuple[int, int]] = {}
        for _ in range(MAX_PARTS):
            if raw.startswith(b"--", at):
                return cls(raw, spans)
            head_end = raw.find(b"\r\n\r\n", at, at + MAX_PART_HEAD)
            end = raw.find(b"\r\n" + delimiter, head_end)
            if head_end < 0 or end < 0:
                raise invalid("The form ends in the middle of a part.")
            name = _NAME.search(raw, at, head_end)
            if name is not None:
                spans.setdefault(name.group(1) or name.group(2), (head_end + 4, end))
            at = end + 2 + len(delimiter)
        raise invalid(f"The form has more than {MAX_PARTS} parts.")

    def text(self, name: bytes) -> str | None:
        """A small text field, None where the form has none of that name."""
        span = self.spans.get(name)
        if span is None:
            return None
        if span[1] - span[0] > MAX_FIELD:
            raise invalid(f"The form field '{name.decode()}' is too long.", name.decode())
        try:
            return self.raw[span[0] : span[1]].decode()
        except UnicodeDecodeError:
            raise invalid(f"The form field '{name.decode()}' is not UTF-8.", name.decode()) from None

    def replaced(self, name: bytes, value: bytes) -> bytes:
        """The form's bytes with one field's content changed; everything else stays as it is."""
        start, end = self.spans[name]
        return self.raw[:start] + value + self.raw[end:]
