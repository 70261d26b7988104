"""How long a worker asks to be left alone, as its answer's head says it."""

from __future__ import annotations

import time
from collections.abc import Iterable
from email.utils import parsedate_to_datetime
from typing import Final

from tailrace.proxy.headers import listed

_LONGEST: Final = 366 * 24 * 3600.0
"""Seconds; more is a mistake, and no worker is given up for it."""


def asked_to_wait(headers: Iterable[tuple[bytes, bytes]]) -> float | None:
    """The seconds of a Retry-After; None where there is none that can be read, or its time is over."""
    exact = listed(headers, b"retry-after-ms")
    told = exact or listed(headers, b"retry-after")
    if told is None:
        return None
    text = told.decode("latin-1").strip()
    try:
        seconds = float(text) / (1000 if exact else 1)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(text).timestamp() - time.time()
        except (ValueError, TypeError, IndexError, OverflowError):
            return None
    return seconds if 0 < seconds <= _LONGEST else None
