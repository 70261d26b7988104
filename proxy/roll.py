"""A worker as one process sees it, in words that travel: for the admin port and `tailrace workers`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tailrace.proxy.trouble import trouble_of

if TYPE_CHECKING:
    from tailrace.proxy.fleet import Worker


def described(worker: Worker) -> dict[str, Any]:
    """Its name, pools, origins, load and standing."""
    standing = worker.standing
    return {
        "worker": worker.name,
        "pools": list(dict.fromkeys(pool.name for pool in worker.pools)),
        "origins": list(worker.origins),
        "lease": None,
        "time_left": None,
        "weight": worker.weight,
        "region": worker.region,
        "bars": sorted(worker.bars),
        "barred": bool(worker.bars) and not any(worker in pool.eligible for pool in worker.pools),
        "eligible": worker.eligible,
        "gets_calls": worker.gets_calls,
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
