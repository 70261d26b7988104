"""Workers that take calls and fail them for a reason that only an operator can mend.

Nothing is kept from them, because some calls may yet succeed; but the log says it once, and whoever lists the workers
sees it for as long as it lasts.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tailrace.proxy.fleet import Worker

log: Final = logging.getLogger("tailrace")
CREDENTIALS: Final = "it refuses the credentials that it is sent: check the `api_key`"
NO_SERVER: Final = "it answers 404 to /health and to /v1/models: no inference server seems to listen there"
NO_ENGINE: Final = "it answers 404 to calls, and not as an engine does: no inference server seems to listen there"
FORGOTTEN: Final = 60.0
"""Seconds after which a trouble that nobody met again is not shown any more."""


def meet(worker: Worker, why: str) -> None:
    """A call, or a question of the gateway's own, has met a trouble."""
    standing, now = worker.standing, _now(worker)
    if trouble_of(worker) != why:
        log.warning("worker %s takes calls, but they fail: %s", worker.name, why)
    standing.trouble, standing.troubled = why, now


def show(worker: Worker, why: str) -> None:
    """Let whoever lists the workers see what the log has said of a worker that is in no such trouble."""
    worker.standing.trouble, worker.standing.troubled = why, _now(worker)


def mendable(worker: Worker) -> bool:
    """Whether the log has said what an operator has to mend for its calls to succeed."""
    return trouble_of(worker) in (CREDENTIALS, NO_SERVER, NO_ENGINE)


def end(worker: Worker, why: str) -> None:
    """A trouble is over."""
    if trouble_of(worker) == why:
        log.info("worker %s is well again; before, %s", worker.name, why)
        worker.standing.trouble = ""


def trouble_of(worker: Worker) -> str:
    """The present trouble, empty where there is none."""
    standing = worker.standing
    return standing.trouble if standing.trouble and _now(worker) - standing.troubled <= FORGOTTEN else ""


def _now(worker: Worker) -> float:
    return worker.connections.sweep.clock.now
