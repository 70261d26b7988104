"""Client connections that are turned away before they say anything: counted by reason, and told of in the log."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Final

from tailrace.proxy.logs import Seldom

if TYPE_CHECKING:
    from tailrace.proxy.metrics.calls import CallCounts

log: Final = logging.getLogger("tailrace")
TOO_MANY: Final = "connections"
ONE_ADDRESS: Final = "connections_per_address"
NO_FILES: Final = "files"
_TELL_EVERY: Final = 10.0
_WORDS: Final = {
    TOO_MANY: "there are as many connections as `limits.connections` allows a process",
    ONE_ADDRESS: "its address has as many connections as `limits.connections_per_address` allows",
    NO_FILES: "this process may open no more files: raise the limit of open files, or lower `limits.connections`",
}


class TurnedAway:
    """Those of one process. Looked at a few times a second, it finds out by itself whether files have run out."""

    def __init__(self, counts: CallCounts) -> None:
        self._counts = counts
        for reason in _WORDS:
            counts.turned_away(reason, 0.0)  # shown from the start
        self._seldom = {reason: Seldom(_TELL_EVERY) for reason in _WORDS}

    def note(self, reason: str) -> None:
        """Another one was turned away."""
        self._counts.turned_away(reason)
        seldom = self._seldom[reason]
        if seldom.due():
            log.warning("a client's connection was turned away: %s%s", _WORDS[reason], seldom.more())

    def visit(self, now: float) -> None:
        """Without a file to spare the event loop drops whoever comes, and tells nobody."""
        try:
            os.close(os.dup(2))
        except OSError:
            self.note(NO_FILES)
