"""What is known of one request: its times, and how it ended."""

from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from typing import Any


class Outcome(StrEnum):
    """How a request ended. Everything but OK and UNFINISHED counts as an error."""

    OK = "ok"
    HTTP_ERROR = "http_error"  # a status other than 2xx
    STREAM_ERROR = "stream_error"  # an error event in a stream whose status was 200
    TRUNCATED = "truncated"  # the answer began, and ended without its proper end
    MALFORMED = "malformed"  # not HTTP, or a body that no SDK could read
    TIMEOUT = "timeout"  # not whole within --timeout of the scheduled time
    CONNECTION_FAILED = "connection_failed"  # refused, or closed before a byte of the answer
    UNFINISHED = "unfinished"  # still open when the run was interrupted


def _times() -> "array[int]":
    return array("q")


@dataclass(slots=True)
class Record:
    """One request. Times are nanoseconds of the monotonic clock; 0 means that it did not happen.

    `listener` gets every event of a streamed answer, for those who want to know more than when it came.
    """

    number: int
    phase: int
    measured: bool
    scheduled: int
    prompt_tokens: int
    max_tokens: int
    sent: int = 0
    connecting: int = 0  # how long the connection took; 0 on one that was open already
    first_byte: int = 0
    contents: "array[int]" = field(default_factory=_times)
    end: int = 0
    status: int = 0
    outcome: Outcome | None = None
    detail: str = ""
    retry_after: bytes = b""
    listener: Callable[[Mapping[str, Any]], None] | None = None

    def finish(self, outcome: Outcome, now: int, detail: str = "") -> None:
        self.outcome = outcome
        self.end = now
        self.detail = detail

    @property
    def time_to_first_token(self) -> int | None:
        """From the scheduled time, so that waiting for a stalled server or connection counts."""
        return self.contents[0] - self.scheduled if self.contents else None

    @property
    def total(self) -> int:
        return self.end - self.scheduled

    def gaps(self) -> list[int]:
        """The times between one piece of content and the next."""
        return [later - earlier for earlier, later in pairwise(self.contents)]

    def error_kind(self) -> str | None:
        """The name that the report counts this request under, None when it is no error."""
        if self.outcome in (None, Outcome.OK, Outcome.UNFINISHED):
            return None
        return f"http_{self.status}" if self.outcome is Outcome.HTTP_ERROR else str(self.outcome)
