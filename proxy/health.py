"""`/healthz` and `/readyz` of the data port: answered from memory and past every plugin, so that they stay fast."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import orjson
from tailrace.proxy.reply import Reply
from tailrace.proxy.routes import Route, Shape

if TYPE_CHECKING:
    from tailrace.proxy.call import Call
    from tailrace.proxy.fleet import Worker


def healthz(_call: Call) -> Reply:
    """Alive: this process answers."""
    return Reply(200, b'{"status":"ok"}', source="health")


def readyz(call: Call) -> Reply:
    """Whether this process, and this host, should get new traffic, and why not."""
    service = call.client.service
    reasons = service.unready() or [*unreachable(call.chain.pins, watched=service.watched), *service.host_unready()]
    status = "unready" if reasons else "ready"
    return Reply(503 if reasons else 200, orjson.dumps({"status": status, "reasons": reasons}), source="health")


def unreachable(workers: Iterable[Worker], *, watched: bool) -> list[str]:
    """The reason to be unready where no worker at all takes calls, or none has been heard of yet.

    One model without workers is no reason: the others would be lost with it.
    """
    eligible = [worker for worker in workers if worker.eligible]
    if not eligible:
        return ["no worker takes calls"]
    if watched and all(worker.standing.seen is None for worker in eligible):
        return ["no worker has been heard of yet"]
    return []


HEALTH: tuple[Route, ...] = (
    Route("/healthz", "health", "GET", Shape.OPAQUE, local=healthz, guarded=False),
    Route("/healthz", "health", "HEAD", Shape.OPAQUE, local=healthz, guarded=False),
    Route("/readyz", "health", "GET", Shape.OPAQUE, local=readyz, guarded=False),
    Route("/readyz", "health", "HEAD", Shape.OPAQUE, local=readyz, guarded=False),
)
