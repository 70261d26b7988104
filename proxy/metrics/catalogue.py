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
STAGE_BOUNDS: Final[tuple[float, ...]] = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
    60.0,
)  # fmt: skip
# As the conventions for generative AI have them.
TOKEN_BOUNDS: Final[tuple[float, ...]] = (
    1.0, 4.0, 16.0, 64.0, 256.0, 1024.0, 4096.0, 16384.0, 65536.0, 262144.0, 1048576.0,
)  # fmt: skip
PER_TOKEN_BOUNDS: Final[tuple[float, ...]] = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5,
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
STAGES = histogram(
    "tailrace_stage_seconds",
    "Where the time of calls that were sent to a worker went; the stages of a call add up to all of it.",
    STAGE_BOUNDS,
    "stage",
    "model",
    "class",
    "region",
    "route",
    "state",
    "failure",
    limit=512,
)
_OF_GENERATION: Final = ("gen_ai_operation_name", "gen_ai_provider_name", "gen_ai_request_model")
INPUT_TOKENS = histogram(
    "gen_ai_client_inference_usage_input_tokens",
    "Tokens of the prompts of calls, as engines count them.",
    TOKEN_BOUNDS,
    *_OF_GENERATION,
    limit=256,
)
OUTPUT_TOKENS = histogram(
    "gen_ai_client_inference_usage_output_tokens",
    "Tokens of the answers to calls, as engines count them.",
    TOKEN_BOUNDS,
    *_OF_GENERATION,
    limit=256,
)
PER_TOKEN = histogram(
    "gen_ai_server_time_per_output_token_seconds",
    "Time of each token behind the first, of streams that ended well.",
    PER_TOKEN_BOUNDS,
    *_OF_GENERATION,
    limit=256,
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
    "tailrace_worker_eligible",
    "Whether new calls go to a worker; 0 if any process sends it none: it is drained, barred or silent, or takes none.",
    "worker",
    merge=Merge.MIN,
)
POOL_ELIGIBLE = gauge(
    "tailrace_pool_eligible", "Workers of a pool to which new calls go, in the process that has fewest.", "pool",
    merge=Merge.MIN,
)  # fmt: skip
WORKER_SUSPECT = gauge(
    "tailrace_worker_suspect", "Whether a worker has fallen silent and may be gone; 1 if any process finds so.",
    "worker", merge=Merge.MAX,
)  # fmt: skip
WORKER_SENT_AFTER_DEATH = gauge(
    "tailrace_worker_last_sent_after_death_seconds",
    "From a worker's last sign of life before its last death to the last attempt that was sent to it nevertheless.",
    "worker",
    merge=Merge.MAX,
)
SUSPECTED = counter(
    "tailrace_worker_suspected_total", "Times that a worker became suspect, by what spoke against it first.", "worker",
    "evidence", limit=2048,
)  # fmt: skip
WORKER_RUNNING = gauge("tailrace_worker_running", "Requests that a worker says it runs.", "worker", merge=Merge.MAX)
WORKER_WAITING = gauge("tailrace_worker_waiting", "Requests that a worker says wait in it.", "worker", merge=Merge.MAX)
WORKER_KV_USE = gauge(
    "tailrace_worker_kv_cache_usage", "Share of its KV cache that a worker says is used.", "worker", merge=Merge.MAX
)
POOL_WAITING = gauge(
    "tailrace_pool_waiting", "Requests that wait in the worker of a pool in which fewest do, of those that get calls.",
    "pool", merge=Merge.MIN,
)  # fmt: skip
POOL_LEVELS: tuple[Family, ...] = (POOL_ELIGIBLE, POOL_WAITING)

WORKER_LEVELS: tuple[Family, ...] = (
    WORKER_INFLIGHT,
    WORKER_CONNECTIONS,
    WORKER_UP,
    WORKER_ELIGIBLE,
    WORKER_RUNNING,
    WORKER_WAITING,
    WORKER_KV_USE,
    WORKER_SUSPECT,
    WORKER_SENT_AFTER_DEATH,
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
