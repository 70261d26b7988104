"""What aiohttp has to say of the admin port, without a traceback for everybody who sends what is no request."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, MutableMapping
from typing import TYPE_CHECKING, Any, Final

from aiohttp.http_exceptions import HttpProcessingError

if TYPE_CHECKING:
    _Adapter = logging.LoggerAdapter[logging.Logger]
else:
    _Adapter = logging.LoggerAdapter

EVERY: Final = 60.0
"""Seconds in which malformed requests are worth one line."""


class Quieter(_Adapter):
    """A logger that counts malformed requests, and says so now and then."""

    def __init__(self, log: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(log, {})
        self._clock = clock
        self._quiet_until = 0.0
        self._unsaid = 0

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """Nothing is added."""
        return msg, kwargs

    def debug(self, msg: object, *args: object, exc_info: Any = None, **kwargs: Any) -> None:
        """What aiohttp says of a method that is none, which it repeats."""
        super().debug(msg, *args, exc_info=None if isinstance(exc_info, HttpProcessingError) else exc_info, **kwargs)

    def exception(self, msg: object, *args: object, exc_info: Any = True, **kwargs: Any) -> None:
        """An error with its traceback, unless a client is to blame."""
        if not isinstance(exc_info, HttpProcessingError):
            super().exception(msg, *args, exc_info=exc_info, **kwargs)
            return
        self._unsaid += 1
        now = self._clock()
        if now >= self._quiet_until:
            self._quiet_until = now + EVERY
            count, self._unsaid = self._unsaid, 0
            peer = args[0] if args else None
            self.info("the admin port got %d malformed requests, the last from %s", count, peer or "a local socket")
