"""A `retry` plugin without pauses, and faults of every status."""

from __future__ import annotations

from typing import Any

from tailrace.plugins.retry import Config, Retry
from tailrace.proxy.fault import Fault, Whose

AT_ONCE = {"back_off": 0.0}


def retrying(**settings: Any) -> Any:
    return Retry(Config(**{**AT_ONCE, **settings}))


def http(status: int, whose: Whose = Whose.ENGINE, *, sent: bool = True, headers: Any = ()) -> Fault:
    return Fault(
        kind="http_error",
        whose=whose,
        status=status,
        code="x",
        message="x",
        retryable=status in (408, 429, 500, 502, 503, 504),
        sent=sent,
        headers=headers,
    )
