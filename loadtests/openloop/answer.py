"""Reads one HTTP answer and judges it as an SDK would. No socket and no clock: bytes and times come in.

A stream is ok only if it ended as its API says it ends, carried no error event, and its HTTP framing
is whole: a proxy that turns a broken answer into a clean end is seen.
"""

from typing import Any

import httptools
import orjson

from openloop.dialects import Dialect, Meaning
from openloop.events import EventReader
from openloop.record import Outcome, Record

DETAIL_LIMIT = 300


class Answer:
    """The answer to one request, as far as it has come. When `complete`, its record has an outcome."""

    __slots__ = (
        "_body",
        "_dialect",
        "_ended",
        "_events",
        "_framed",
        "_now",
        "_parser",
        "_record",
        "_stream",
        "_trouble",
        "complete",
        "reusable",
    )

    def __init__(self, record: Record, dialect: Dialect, *, stream: bool) -> None:
        self._record = record
        self._dialect = dialect
        self._stream = stream
        self._parser: Any = httptools.HttpResponseParser(self)
        self._events = EventReader()
        self._body: list[bytes] = []
        self._framed = False
        self._ended = False
        self._trouble: tuple[Outcome, str] | None = None
        self._now = 0
        self.complete = False
        self.reusable = False

    def feed(self, received: bytes, now: int) -> None:
        """Take bytes that arrived at `now`."""
        if self._parser is None:
            self.reusable = False  # bytes beyond the answer: nobody asked for them
            return
        self._now = now
        if not self._record.first_byte:
            self._record.first_byte = now
        try:
            self._parser.feed_data(received)
        except httptools.HttpParserError as error:
            if not self.complete:
                self._finish(Outcome.MALFORMED, f"not HTTP: {error}")
            self.reusable = False
        if self.complete:
            self._parser = None  # it holds this answer: without the garbage collector neither would go

    def connection_ended(self, now: int, why: str) -> None:
        """The connection is gone: a body without declared length is whole now, anything else is cut short."""
        if self.complete:
            return
        self._now = now
        if self._trouble:
            self._finish(*self._trouble)
        elif self._record.status and (not self._framed or not 200 <= self._record.status < 300):
            self.on_message_complete()
        elif self._record.first_byte:
            self._finish(Outcome.TRUNCATED, f"{why} inside the answer")
        else:
            self._finish(Outcome.CONNECTION_FAILED, f"{why} before the answer")
        self._parser = None

    def on_message_begin(self) -> None:
        if self.complete:
            self.reusable = False

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() in (b"content-length", b"transfer-encoding"):
            self._framed = True
        elif name.lower() == b"retry-after":
            self._record.retry_after = value

    def on_headers_complete(self) -> None:
        if not self.complete:
            self._record.status = self._parser.get_status_code()

    def on_body(self, piece: bytes) -> None:
        if self.complete:
            return
        if self._stream and 200 <= self._record.status < 300:
            for payload in self._events.feed(piece):
                self._read_event(payload)
        else:
            self._body.append(piece)

    def on_message_complete(self) -> None:
        record = self._record
        if self.complete:
            return
        if 100 <= record.status < 200:
            record.status = 0
            self._framed = False
            return
        self.reusable = self._framed and bool(self._parser.should_keep_alive())
        if not 200 <= record.status < 300:
            self._finish(Outcome.HTTP_ERROR, b"".join(self._body)[:DETAIL_LIMIT].decode(errors="replace"))
        elif self._stream:
            self._judge_stream()
        else:
            self._judge_body(b"".join(self._body))

    def _read_event(self, payload: bytes) -> None:
        if payload == b"[DONE]":
            self._ended = self._ended or self._dialect.done_marker
            return
        try:
            event = orjson.loads(payload)
            meaning = self._dialect.read(event)
            if self._record.listener is not None:
                self._record.listener(event)
        except (ValueError, AttributeError, TypeError):
            self._trouble = self._trouble or (Outcome.MALFORMED, f"event: {_shown(payload)}")
            return
        if meaning is Meaning.CONTENT:
            self._record.contents.append(self._now)
        elif meaning is Meaning.LAST:
            self._ended = True
        elif meaning is Meaning.ERROR:
            self._trouble = self._trouble or (Outcome.STREAM_ERROR, _shown(payload))

    def _judge_stream(self) -> None:
        if self._trouble:
            self._finish(*self._trouble)
        elif not self._ended:
            self._finish(Outcome.TRUNCATED, "a clean end of the body, but no end of the stream in it")
        elif self._events.unfinished:
            self._finish(Outcome.TRUNCATED, "part of an event after the end of the stream")
        else:
            self._finish(Outcome.OK, "")

    def _judge_body(self, body: bytes) -> None:
        try:
            whole = orjson.loads(body)
        except ValueError:
            whole = None
        if isinstance(whole, dict) and self._dialect.answer_field in whole and not whole.get("error"):
            self._finish(Outcome.OK, "")
        else:
            self._finish(Outcome.MALFORMED, f"body: {_shown(body)}")

    def _finish(self, outcome: Outcome, detail: str) -> None:
        self.complete = True
        self._record.finish(outcome, self._now, detail)


def _shown(text: bytes) -> str:
    return text[:DETAIL_LIMIT].decode(errors="replace")
