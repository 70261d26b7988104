"""A multipart form read in place: the small fields the gateway needs, while the bytes stay as they are.

Stricter than most parsers on purpose. What two programs could read in two ways is refused: a form must not name one
model to the gateway and another to the worker.
"""

from __future__ import annotations

import re

from tailrace.proxy.body import invalid
from tailrace.proxy.fault import Reject

_PARAMETER = re.compile(rb';[ \t]*([!#$%&\'*+\-.^_`|~0-9A-Za-z]+)=(?:"((?:[^"\\\r\n]|\\.)*)"|([^\s;"]+))[ \t]*')
_BOUNDARY = re.compile(rb"[0-9A-Za-z'()+_,\-./:=? ]{0,199}[0-9A-Za-z'()+_,\-./:=?]\Z")
_DISPOSITION = b"content-disposition:"
MAX_PARTS = 64
MAX_PART_HEAD = 8192
MAX_FIELD = 64 * 1024

Span = tuple[int, int]


class Form:
    """Where each named part of a form lies in its bytes; `repeated` are the names that came more than once."""

    __slots__ = ("_begin", "_delimiter", "raw", "repeated", "spans")

    def __init__(self, raw: bytes, delimiter: bytes) -> None:
        self.raw = raw
        self.spans: dict[bytes, Span] = {}
        self.repeated: set[bytes] = set()
        self._delimiter = delimiter
        self._begin = 0

    @classmethod
    def read(cls, raw: bytes, content_type: bytes) -> Form:
        """Find the parts; raises Reject(400 or 415) where the body is no such form."""
        media, mark, _ = content_type.partition(b";")
        if media.strip().lower() != b"multipart/form-data":
            raise Reject(
                415, "unsupported_media_type", "The request body must be multipart/form-data.", kind="bad_request"
            )
        boundary = _parameters(content_type[len(media) :] if mark else b"").get(b"boundary", b"")
        if not _BOUNDARY.match(boundary):
            raise invalid("The form has no usable boundary.")
        form = cls(raw, b"--" + boundary)
        form._find_parts()
        return form

    def _find_parts(self) -> None:
        raw, delimiter = self.raw, self._delimiter
        # What stands before the first boundary is no part of the form, but must not look like one to anybody.
        self._begin = begin = raw.find(delimiter)
        if begin < 0 or (begin and not raw.startswith(b"\r\n", begin - 2)):
            raise invalid("The form does not begin with its boundary.")
        at = begin + len(delimiter)
        for _ in range(MAX_PARTS + 1):
            if raw.startswith(b"--", at):
                return
            if not raw.startswith(b"\r\n", at):
                raise invalid("Something follows the boundary of the form on its line.")
            head_end = raw.find(b"\r\n\r\n", at, at + MAX_PART_HEAD)
            end = raw.find(b"\r\n" + delimiter, head_end + 2)
            if head_end < 0 or end < head_end + 4:
                raise invalid("The form ends in the middle of a part.")
            self._note(_name_of(raw[at + 2 : head_end]), (head_end + 4, end))
            at = end + 2 + len(delimiter)
        raise invalid(f"The form has more than {MAX_PARTS} parts.")

    def _note(self, name: bytes | None, span: Span) -> None:
        if name is None:
            return
        if name in self.spans:
            self.repeated.add(name)
        self.spans[name] = span

    def text(self, name: bytes) -> str | None:
        """A small text field, None where the form has none of that name."""
        span = self.spans.get(name)
        if span is None:
            return None
        shown = name.decode()
        if name in self.repeated:
            raise invalid(f"The form has the field '{shown}' twice.", shown)
        if span[1] - span[0] > MAX_FIELD:
            raise invalid(f"The form field '{shown}' is too long.", shown)
        try:
            return self.raw[span[0] : span[1]].decode()
        except UnicodeDecodeError:
            raise invalid(f"The form field '{shown}' is not UTF-8.", shown) from None

    def replaced(self, name: bytes, value: bytes) -> bytes:
        """The form's bytes with one field's content changed, or the field added; everything else stays as it is."""
        span = self.spans.get(name)
        if span is not None:
            return self.raw[: span[0]] + value + self.raw[span[1] :]
        added = b'\r\nContent-Disposition: form-data; name="%b"\r\n\r\n%b\r\n' % (name, value)
        return self.raw[: self._begin] + self._delimiter + added + self.raw[self._begin :]


def _name_of(head: bytes) -> bytes | None:
    """The field that a part is for; raises Reject(400) where that could be read in two ways."""
    found = None
    for line in head.split(b"\r\n"):
        if line.startswith((b" ", b"\t")) or b"\n" in line or b"\r" in line:
            raise invalid("A part of the form has a header over several lines.")
        if not line.lower().startswith(_DISPOSITION):
            continue
        if found is not None:
            raise invalid("A part of the form has two names.")
        disposition = line[len(_DISPOSITION) :]
        found = _parameters(disposition[len(disposition.partition(b";")[0]) :])
    if found is None:
        return None
    name = found.get(b"name")
    if b"name*" in found or (name is not None and b"\\" in name):
        raise invalid("A field name of the form is written in an unusual way.")
    return name


def _parameters(text: bytes) -> dict[bytes, bytes]:
    """The parameters of a header's value, by name in lower case; raises Reject(400) where they are not well formed."""
    found: dict[bytes, bytes] = {}
    at = 0
    text = text.rstrip(b" \t;")
    while at < len(text):
        parameter = _PARAMETER.match(text, at)
        if parameter is None:
            raise invalid("A parameter of the form's headers is malformed.")
        name = parameter.group(1).lower()
        if name in found:
            raise invalid("A parameter of the form's headers is given twice.")
        quoted = parameter.group(2)
        found[name] = parameter.group(3) if quoted is None else quoted
        at = parameter.end()
    return found
