"""What the answers of an engine without a sidecar mean."""

from __future__ import annotations

import orjson
from tailrace.proxy.trouble import CREDENTIALS, NO_SERVER
from tailrace.proxy.watch.feed import models_of


def verdict(health_status: int) -> str | None:
    """Why an engine whose health check answers so is dead, None where it is not.

    An engine that knows no health check answers 404, and one behind a key 401: both are alive.
    """
    return f"its health check answers {health_status}" if health_status >= 500 else None


def trouble_in(health_status: int, models_status: int) -> str:
    """What keeps an engine that answers so from serving, empty where nothing does."""
    if models_status in (401, 403):
        return CREDENTIALS
    return NO_SERVER if health_status == models_status == 404 else ""


def models_in(body: bytes) -> dict[str, str] | None:
    """The models of a model list, None where it is none."""
    try:
        listing = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    return models_of(listing.get("data")) if isinstance(listing, dict) else None
