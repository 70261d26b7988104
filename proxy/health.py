"""`/healthz` and `/readyz` of the data port: answered from memory and past every plugin, so that they stay fast."""

from __future__ import annotations

from collections.abc import Callable, Iterable
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


def readyz(of_workers: Callable[[], list[str]] | None = None) -> Callable[[Call], Reply]:
    """What answers whether this process, and this host, should get new traffic, and why not.

    `of_workers` are the reasons that lie in workers, where the role knows better than that none takes calls.
    """

    def answer(call: Call) -> Reply:
        service = call.client.service
        reasons = service.unready()
        if not reasons:
            known = of_workers() if of_workers else unreachable(call.chain.pins, watched=service.watched)
            reasons = [*known, *service.host_unready()]
        status = "unready" if reasons else "ready"
        return Reply(503 if reasons else 200, orjson.dumps({"status": status, "reasons": reasons}), source="health")

    return answer


def unreachable(workers: Iterable[Worker], *, watched: bool) -> list[str]:
    """The reason to be unready where no worker at all gets calls, or none has been heard of yet.

    One model without workers is no reason: the others would be lost with it.
    """
    eligible = [worker for worker in workers if worker.eligible]
    if not eligible:
        return ["no worker takes calls"]
    if watched and all(worker.standing.seen is None for worker in eligible):
        return ["no worker has been heard of yet"]
    if not any(worker.gets_calls for worker in eligible):
        return ["no worker is heard"]
    return []


def health_routes(ready: Callable[[Call], Reply]) -> tuple[Route, ...]:
    """The routes of both, `ready` being what answers `/readyz`."""
    return tuple(
        Route(path, "health", method, Shape.OPAQUE, local=local, guarded=False)
        for path, local in (("/healthz", healthz), ("/readyz", ready))
        for method in ("GET", "HEAD")
    )


HEALTH = health_routes(readyz())
