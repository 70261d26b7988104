"""`/metrics`: the engine's counters in Prometheus text, named and worded as vLLM's."""

from __future__ import annotations

from collections.abc import Iterable

from tailrace.worker.sim.engine import Engine
from tailrace.worker.sim.metrics import FINISH_REASONS, Histogram

Labels = dict[str, str]
Sample = tuple[Labels, float]


def _number(value: float) -> str:
    """As prometheus_client writes floats: with an exponent from a million on."""
    text = repr(float(value))
    whole, _, fraction = text.partition(".")
    if "e" in text or len(whole.lstrip("-")) <= 6 or value < 0:
        return text
    mantissa = f"{whole[0]}.{whole[1:]}{fraction}".rstrip("0.")
    return f"{mantissa}e+{len(whole) - 1:02d}"


def _sample(name: str, labels: Labels, value: float) -> str:
    shown = ",".join(f'{key}="{_escaped(labels[key])}"' for key in sorted(labels))
    return f"{name}{{{shown}}} {_number(value)}\n"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


class Exposition:
    """Writes families one after another."""

    def __init__(self, labels: Labels, created: float) -> None:
        self._labels = labels
        self._created = created
        self._lines: list[str] = []

    def _head(self, name: str, kind: str, told: str) -> None:
        self._lines.append(f"# HELP {name} {told}\n# TYPE {name} {kind}\n")

    def _born(self, name: str, told: str, labels: Iterable[Labels]) -> None:
        self._head(f"{name}_created", "gauge", told)
        self._lines += [_sample(f"{name}_created", each, self._created) for each in labels]

    def gauge(self, name: str, told: str, samples: Iterable[Sample]) -> None:
        """A value that goes up and down."""
        self._head(name, "gauge", told)
        self._lines += [_sample(name, self._labels | labels, value) for labels, value in samples]

    def counter(self, name: str, told: str, samples: Iterable[Sample], *, engine: bool = True) -> None:
        """A value that only grows; counted by the API server, not an engine, where `engine` is false."""
        common = self._labels if engine else {"model_name": self._labels["model_name"]}
        every = [(common | labels, value) for labels, value in samples]
        self._head(f"{name}_total", "counter", told)
        self._lines += [_sample(f"{name}_total", labels, value) for labels, value in every]
        self._born(name, told, [labels for labels, _ in every])

    def histogram(self, name: str, told: str, counted: Histogram) -> None:
        """Counts by upper bound, each including those below."""
        self._head(name, "histogram", told)
        total = 0
        for bound, count in zip((*counted.bounds, float("inf")), counted.buckets, strict=True):
            total += count
            shown = "+Inf" if bound == float("inf") else repr(bound)
            self._lines.append(_sample(f"{name}_bucket", self._labels | {"le": shown}, total))
        self._lines.append(_sample(f"{name}_count", self._labels, counted.count))
        self._lines.append(_sample(f"{name}_sum", self._labels, counted.sum))
        self._born(name, told, [self._labels])

    def text(self) -> bytes:
        """All of it."""
        return "".join(self._lines).encode()


def exposition(engine: Engine) -> bytes:
    """The state of the engine."""
    page = Exposition({"engine": "0", "model_name": engine.name}, engine.born)
    _state(page, engine)
    _counters(page, engine)
    _histograms(page, engine)
    settings = engine.settings
    config = {
        "block_size": str(settings.block_size),
        "enable_prefix_caching": "True",
        "num_gpu_blocks": str(settings.num_gpu_blocks),
    }
    page.gauge("vllm:cache_config_info", "Information of the LLMEngine CacheConfig", [(config, 1)])
    return page.text()


def _state(page: Exposition, engine: Engine) -> None:
    scheduler = engine.scheduler
    page.gauge("vllm:num_requests_running", "Number of requests in model execution batches.", [({}, scheduler.running)])
    page.gauge("vllm:num_requests_waiting", "Number of requests waiting to be processed.", [({}, scheduler.waiting)])
    told = (
        "Number of waiting requests by reason. Reason labels: 'capacity' = waiting for scheduling capacity; 'deferred' "
        "= deferred by transient constraints (LoRA budget, KV transfer, blocked status). Sum of all reasons equals "
        "vllm:num_requests_waiting."
    )
    by_reason = [({"reason": "capacity"}, scheduler.waiting), ({"reason": "deferred"}, 0)]
    page.gauge("vllm:num_requests_waiting_by_reason", told, by_reason)
    page.gauge("vllm:kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", [({}, scheduler.kv_usage)])
    if engine.adapters:
        running, waiting = scheduler.adapters()
        labels = {
            "max_lora": str(len(engine.adapters)),
            "running_lora_adapters": ",".join(sorted(running)),
            "waiting_lora_adapters": ",".join(sorted(waiting)),
        }
        page.gauge("vllm:lora_requests_info", "Running stats on lora requests.", [(labels, engine.clock.wall())])


def _counters(page: Exposition, engine: Engine) -> None:
    counted = engine.metrics
    page.counter(
        "vllm:prefix_cache_queries",
        "Prefix cache queries, in terms of number of queried tokens.",
        [({}, counted.prompt_tokens)],
    )
    page.counter(
        "vllm:prefix_cache_hits",
        "Prefix cache hits, in terms of number of cached tokens.",
        [({}, counted.cached_tokens)],
    )
    page.counter(
        "vllm:num_preemptions", "Cumulative number of preemption from the engine.", [({}, counted.preemptions)]
    )
    page.counter("vllm:prompt_tokens", "Number of prefill tokens processed.", [({}, counted.prompt_tokens)])
    by_source = [
        ({"source": "local_compute"}, counted.prompt_tokens - counted.cached_tokens),
        ({"source": "local_cache_hit"}, counted.cached_tokens),
        ({"source": "external_kv_transfer"}, 0),
    ]
    page.counter("vllm:prompt_tokens_by_source", "Number of prompt tokens by source.", by_source)
    told = "Number of cached prompt tokens (local + external)."
    page.counter("vllm:prompt_tokens_cached", told, [({}, counted.cached_tokens)])
    told = "Number of generation tokens processed."
    page.counter("vllm:generation_tokens", told, [({}, counted.generation_tokens)])
    reasons = [({"finished_reason": reason}, counted.finish_reasons[reason]) for reason in FINISH_REASONS]
    page.counter("vllm:request_success", "Count of successfully processed requests.", reasons)
    told = "Number of admission attempts rejected by a queue limit, by reason."
    rejected = [({"reason": "max_num_queued_reqs"}, counted.rejected), ({"reason": "max_num_queued_tokens"}, 0)]
    page.counter("vllm:admission_rejections", told, rejected, engine=False)


def _histograms(page: Exposition, engine: Engine) -> None:
    counted = engine.metrics
    for name, told, histogram in (
        ("request_prompt_tokens", "Number of prefill tokens processed.", counted.request_prompt),
        ("request_generation_tokens", "Number of generation tokens processed.", counted.request_generation),
        ("iteration_tokens_total", "Histogram of number of tokens per engine_step.", counted.iteration),
        ("time_to_first_token_seconds", "Histogram of time to first token in seconds.", counted.ttft),
        ("inter_token_latency_seconds", "Histogram of inter-token latency in seconds.", counted.itl),
        (
            "request_time_per_output_token_seconds",
            "Histogram of time_per_output_token_seconds per request.",
            counted.per_token,
        ),
        ("e2e_request_latency_seconds", "Histogram of e2e request latency in seconds.", counted.e2e),
        ("request_queue_time_seconds", "Histogram of time spent in WAITING phase for request.", counted.queue),
        ("request_inference_time_seconds", "Histogram of time spent in RUNNING phase for request.", counted.inference),
        ("request_prefill_time_seconds", "Histogram of time spent in PREFILL phase for request.", counted.prefill),
        ("request_decode_time_seconds", "Histogram of time spent in DECODE phase for request.", counted.decode),
    ):
        page.histogram(f"vllm:{name}", told, histogram)
