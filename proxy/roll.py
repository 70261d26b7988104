"""A worker as one process sees it, in words that travel: for the admin port and `tailrace workers`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tailrace.proxy.trouble import trouble_of

if TYPE_CHECKING:
    from tailrace.proxy.fleet import Worker


def described(worker: Worker) -> dict[str, Any]:
    """Its name, pools, load and standing."""
    standing = worker.standing
    return {
        "worker": worker.name,
        "pools": [pool.name for pool in worker.pools],
        "eligible": worker.eligible,
        "drained": worker.drained,
        "inflight": worker.inflight,
        "standing": {
            "ready": standing.ready,
            "draining": standing.draining,
            "dead": standing.dead,
            "running": standing.running,
            "waiting": standing.waiting,
            "kv_use": standing.kv_use,
            "tokens_per_second": standing.tokens_per_second,
            "models": standing.models,
            "reason": standing.reason or trouble_of(worker),
        },
    }
