"""Every metric of the relay, with its labels and buckets. Label values come from fixed or configured sets only.

`code` is a status of a fixed set, else its class; `route` a name of the route table; `model` a configured model or an
adapter that a worker lists, else "unknown"; `worker` the address of a configured or discovered worker.
"""

from __future__ import annotations

from typing import Final

from tailrace.proxy.metrics.family import Family, Merge, counter, gauge, histogram

OVERHEAD_BOUNDS: Final[tuple[float, ...]] = (
    0.00005, 0.0001, 0.00015, 0.0002, 0.0003, 0.0005, 0.00075, 0.001, 0.0015, 0.002, 0.003, 0.005, 0.01, 0.02, 0.05,
)  # fmt: skip
FIRST_TOKEN_BOUNDS: Final[tuple[float, ...]] = (
    0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 60.0,
)  # fmt: skip
DURATION_BOUNDS: Final[tuple[float, ...]] = (
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0,
)  # fmt: skip
STALL_BOUNDS: Final[tuple[float, ...]] = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)

REQUESTS = counter(
    "tailrace_requests_total",
    "Requests that ended, by how they ended.",
    "route",
    "model",
    "outcome",
    "code",
    limit=2048,
)
DURATION = histogram(
    "tailrace_request_duration_seconds",
    "From a request's head to the end of its answer.",
    DURATION_BOUNDS,
    "route",
    "model",
)
FIRST_TOKEN = histogram(
    "tailrace_time_to_first_token_seconds",
    "From a request's head to the first content of its stream; only streams that had some.",
    FIRST_TOKEN_BOUNDS,
    "route",
    "model",
)
OVERHEAD = histogram(
    "tailrace_gateway_overhead_seconds",
    "From a whole request to its bytes leaving for a worker, without waits in queues, and for whole answers from their "
    "arrival to their leaving.",
    OVERHEAD_BOUNDS,
    "route",
    limit=64,
)
ATTEMPTS = counter("tailrace_attempts_total", "Attempts at workers that ended.", "worker", "outcome", "why", limit=1536)
FAULTS = counter(
    "tailrace_faults_total", "Faults of attempts and calls, by whose they are.", "kind", "whose", limit=128
)
CLIENT_GONE = counter("tailrace_client_gone_total", "Calls whose client left before the answer was complete.")
STREAMS_CUT = counter("tailrace_streams_cut_total", "Answers that had begun well and were cut off by a fault.")
PLUGIN_FAILURES = counter(
    "tailrace_plugin_failures_total", "Plugins that raised or took longer than their budget.", "plugin", limit=64
)

ACTIVE = gauge("tailrace_requests_active", "Requests being served.")
CONNECTIONS = gauge("tailrace_connections_open", "Open client connections.")
CONNECTIONS_REFUSED = counter(
    "tailrace_connections_refused_total",
    "Client connections turned away for a limit; of files, how often there was none left when looked at.",
    "reason",
    limit=8,
)
BODY_MEMORY = gauge("tailrace_body_memory_bytes", "Memory held by request bodies.")
BODY_MEMORY_LIMIT = gauge("tailrace_body_memory_limit_bytes", "Memory that request bodies may take.")
GENERATION = gauge(
    "tailrace_config_generation",
    "Generation of the configuration in use; the oldest of all processes.",
    merge=Merge.MIN,
)
RELOAD_FAILURES = counter("tailrace_config_reload_failures_total", "Changed configurations that were refused.")
START_TIME = gauge(
    "tailrace_process_start_time_seconds", "When the oldest process began, in Unix time.", merge=Merge.MIN
)
RESTARTS = counter("tailrace_process_restarts_total", "Processes that ended unasked and were replaced.")
LOOP_STALL = histogram(
    "tailrace_loop_stall_seconds", "How late timers of the event loop fire; sampled ten times a second.", STALL_BOUNDS
)
BUILD_INFO = gauge("tailrace_build_info", "Always 1; the version is a label.", "version", merge=Merge.MAX, limit=8)
SERIES_FOLDED = counter(
    "tailrace_metrics_series_folded_total",
    "Times that a new series found no room: counted under other, or left out if a gauge.",
)

WORKER_INFLIGHT = gauge("tailrace_worker_inflight", "Attempts running at a worker.", "worker")
WORKER_CONNECTIONS = gauge("tailrace_upstream_connections_open", "Open connections to a worker.", "worker")
WORKER_UP = gauge(
    "tailrace_worker_up", "Whether a worker is alive and ready; 0 if any process finds it is not.", "worker",
    merge=Merge.MIN,
)  # fmt: skip
WORKER_ELIGIBLE = gauge(
    "tailrace_worker_eligible", "Whether a worker may get new calls; 0 if in any process it may not.", "worker",
    merge=Merge.MIN,
)  # fmt: skip
WORKER_RUNNING = gauge("tailrace_worker_running", "Requests that a worker says it runs.", "worker", merge=Merge.MAX)
WORKER_WAITING = gauge("tailrace_worker_waiting", "Requests that a worker says wait in it.", "worker", merge=Merge.MAX)
WORKER_KV_USE = gauge(
    "tailrace_worker_kv_cache_usage", "Share of its KV cache that a worker says is used.", "worker", merge=Merge.MAX
)

WORKER_LEVELS: tuple[Family, ...] = (
    WORKER_INFLIGHT,
    WORKER_CONNECTIONS,
    WORKER_UP,
    WORKER_ELIGIBLE,
    WORKER_RUNNING,
    WORKER_WAITING,
    WORKER_KV_USE,
)
CODES = frozenset(
    {200, 204, 400, 401, 402, 403, 404, 405, 408, 409, 413, 414, 415, 417, 422, 429, 431, 499}
    | {500, 501, 502, 503, 504, 505, 529}
)


def code_of(status: int) -> str:
    """The `code` label of a status."""
    if status in CODES:
        return str(status)
    return f"{status // 100}xx" if 100 <= status < 600 else "other"
