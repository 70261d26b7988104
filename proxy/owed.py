"""What a stream still owes behind its first finish reason: those of its other choices, and usage that was asked for."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tailrace.proxy import answers
from tailrace.proxy.usage import usage_in

if TYPE_CHECKING:
    from tailrace.proxy.attempt import Attempt
    from tailrace.proxy.sse import Event

SILENCE = 2.0
"""Seconds after which a stream that owes nothing counts as ended, though its worker says nothing of an end."""
USAGE = "the usage that was asked for"
_USAGE_ASKED = re.compile(rb'"include_usage"\s*:\s*true')
_RUNNING_ASKED = re.compile(rb'"continuous_usage_stats"\s*:\s*true')


class Owed:
    """The account of one stream, opened at its first finish reason; `usage` is due once every choice has finished."""

    __slots__ = ("_asked", "_choices", "_running", "finished", "usage")

    def __init__(self, attempt: Attempt) -> None:
        call = attempt.call
        self._choices = answers.choices_asked(call)
        options = None if call.body is None or attempt.unasked else call.body.written("stream_options")
        self._asked = options is not None and _USAGE_ASKED.search(options) is not None
        self._running = options is not None and _RUNNING_ASKED.search(options) is not None
        self.finished = False
        self.usage = False

    def note(self, event: Event, *, finish: bool) -> None:
        """One event from the first finish reason on; `finish` says that it holds one."""
        if finish:
            self._choices -= answers.choices_finished(event)
            self.finished = self._choices <= 0
        if self._asked and self.finished:
            # Where every event brings some, that of the last choice's end is not the sum.
            self.usage = self._asked = (self._running and finish) or usage_in(event.data) is None
