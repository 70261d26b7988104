"""Log lines for people: one line an event, on stderr, the origin of an unexpected error folded into its line."""

from __future__ import annotations

import logging
import os
import sys
import time
import traceback
from collections.abc import Callable

from tailrace.proxy.trace.context import CURRENT

_LEVELS = {"DEBUG": "debug", "INFO": "info ", "WARNING": "warn ", "ERROR": "error", "CRITICAL": "fatal"}
_FRAMES = 6
CHOICES = ("debug", "info", "warning", "error")
VARIABLE = "TAILRACE_LOG_LEVEL"


class _Lines(logging.Formatter):
    who = ""

    def format(self, record: logging.LogRecord) -> str:
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        level = _LEVELS.get(record.levelname, record.levelname)
        text = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            text = f"{text}: {origin(record.exc_info[1])}"
        text += _of_call(text)
        # A name that a client chose must not be able to forge a line.
        text = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text.replace("\n", " | "))
        return f"{moment}.{int(record.msecs):03d}Z {level} {self.who}: {text}"


def _of_call(text: str) -> str:
    """Which request and trace a line belongs to that is written in the course of a call."""
    trace = CURRENT.get()
    if trace is None:
        return ""
    request = "" if trace.call_id in text else f"request {trace.call_id}, "
    return f" [{request}trace {trace.trace_id}]"


class Seldom:
    """Lets one line through in so many seconds, and counts those that it holds back."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._last = float("-inf")
        self._held_back = 0

    def due(self) -> bool:
        """Whether a line may be written now."""
        now = self._clock()
        if now - self._last < self._seconds:
            self._held_back += 1
            return False
        self._last = now
        return True

    def more(self) -> str:
        """What the line says of those before it that were not written."""
        held_back, self._held_back = self._held_back, 0
        return f" ({held_back} more since the last such line)" if held_back else ""


def origin(error: BaseException) -> str:
    """An exception with the places it passed, innermost first, in one line."""
    frames = traceback.extract_tb(error.__traceback__)[::-1][:_FRAMES]
    places = " < ".join(f"{frame.filename}:{frame.lineno} in {frame.name}" for frame in frames)
    return f"{type(error).__name__}: {error} (at {places})" if places else f"{type(error).__name__}: {error}"


def configure(who: str, level: str | None = None) -> None:
    """Send this process's log to stderr; `who` is named in every line. The level holds for its children, too."""
    level = level or os.environ.get(VARIABLE, "info")
    os.environ[VARIABLE] = level = level if level in CHOICES else "info"
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Lines())
    name_process(who)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("tailrace").setLevel(level.upper())


def name_process(who: str) -> None:
    """Change what lines say of their origin."""
    _Lines.who = who
