"""Log lines that may come for thousands of workers at once: the first of a kind each, then one for all others."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

log: Final = logging.getLogger("tailrace")
EACH: Final = 8
"""Lines of one kind that are said each within a PERIOD of seconds."""
PERIOD: Final = 1.0


class Lines:
    """A log for what is said of one worker, whose name comes first; lines of one text are of one kind."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._counts: dict[tuple[int, str], int] = {}
        self._last: dict[tuple[int, str], tuple[Any, ...]] = {}

    def info(self, text: str, *args: Any) -> None:
        """Say what is as it should be."""
        self._say(logging.INFO, text, args)

    def warning(self, text: str, *args: Any) -> None:
        """Say what an operator may want to see to."""
        self._say(logging.WARNING, text, args)

    def error(self, text: str, *args: Any) -> None:
        """Say what an operator has to see to."""
        self._say(logging.ERROR, text, args)

    def _say(self, level: int, text: str, args: tuple[Any, ...]) -> None:
        kind = level, text
        count = self._counts.get(kind, 0)
        if not count:
            self._loop.call_later(PERIOD, self._sum_up, kind)
        self._counts[kind] = count + 1
        if count < EACH:
            log.log(level, text, *args)
        else:
            self._last[kind] = args

    def _sum_up(self, kind: tuple[int, str]) -> None:
        """Say how many lines there would have been, and show the last."""
        more = self._counts.pop(kind) - EACH
        if more > 0:
            level, text = kind
            log.log(level, f"{text} (the last of %d more within a second)", *self._last.pop(kind), more)
