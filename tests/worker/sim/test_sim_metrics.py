"""`/metrics` says what happened, in vLLM's names and Prometheus' format."""

import re

import pytest
from fakes import run, until
from sim_client import CHAT, HELLO, STREAM, begin, fetch, get, running
from tailrace.worker.sim import Adapter
from tailrace.worker.sim.exposition import _number
from tailrace.worker.sim.metrics import Histogram

# Families of the reference capture that load balancers and dashboards read.
FAMILIES = {
    "num_requests_running": "gauge",
    "num_requests_waiting": "gauge",
    "num_requests_waiting_by_reason": "gauge",
    "kv_cache_usage_perc": "gauge",
    "cache_config_info": "gauge",
    "prefix_cache_queries_total": "counter",
    "prefix_cache_hits_total": "counter",
    "num_preemptions_total": "counter",
    "prompt_tokens_total": "counter",
    "generation_tokens_total": "counter",
    "request_success_total": "counter",
    "admission_rejections_total": "counter",
    "time_to_first_token_seconds": "histogram",
    "inter_token_latency_seconds": "histogram",
    "e2e_request_latency_seconds": "histogram",
    "request_queue_time_seconds": "histogram",
    "request_prompt_tokens": "histogram",
    "iteration_tokens_total": "histogram",
}
LINE = re.compile(r'([a-z:_0-9]+)\{([a-z_]+="[^"]*"(?:,[a-z_]+="[^"]*")*)\} (\S+)')


def parsed(page: str) -> tuple[dict[str, str], dict[str, float]]:
    """The kinds of the families, and the samples by name and labels."""
    kinds, samples = {}, {}
    for line in page.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name not in kinds
            kinds[name] = kind
        elif not line.startswith("#"):
            found = LINE.fullmatch(line)
            assert found, line
            key = f"{found[1]}{{{found[2]}}}"
            assert key not in samples
            samples[key] = float(found[3])
    return kinds, samples


def test_page_agrees_with_what_was_done() -> None:
    async def ask() -> None:
        async with running(max_num_queued_reqs=2) as sim:
            for _ in range(2):
                await fetch(sim, CHAT, HELLO | {"max_tokens": 7, "messages": [{"role": "user", "content": "a " * 40}]})
            await fetch(sim, CHAT, HELLO | {"stream": True, "max_tokens": 5, "stop": ["e"]})
            assert (await fetch(sim, CHAT, HELLO | {"n": 3, "temperature": 1})).status == 503
            answer = await get(sim, "/metrics")
            assert b"content-type: text/plain; version=1.0.0; charset=utf-8" in answer.head
            kinds, samples = parsed(answer.body.decode())
            assert {f"vllm:{name}": kind for name, kind in FAMILIES.items()}.items() <= kinds.items()

            engine = '{engine="0",model_name="tiny"}'
            counted = sim.metrics
            assert samples[f"vllm:generation_tokens_total{engine}"] == counted.generation_tokens >= 15
            assert samples[f"vllm:prompt_tokens_total{engine}"] == counted.prompt_tokens
            assert samples[f"vllm:prefix_cache_queries_total{engine}"] == counted.prompt_tokens
            assert samples[f"vllm:prefix_cache_hits_total{engine}"] == counted.cached_tokens > 0
            assert samples[f"vllm:num_requests_running{engine}"] == 0
            for reason, count in (("length", 2), ("stop", 1), ("abort", 0), ("error", 0)):
                key = f'vllm:request_success_total{{engine="0",finished_reason="{reason}",model_name="tiny"}}'
                assert samples[key] == count
            rejected = 'vllm:admission_rejections_total{model_name="tiny",reason="max_num_queued_reqs"}'
            assert samples[rejected] == 1
            for name in ("time_to_first_token_seconds", "e2e_request_latency_seconds", "request_queue_time_seconds"):
                assert samples[f"vllm:{name}_count{engine}"] == 3
                top = f'vllm:{name}_bucket{{engine="0",le="+Inf",model_name="tiny"}}'
                assert samples[top] == 3
            tokens = samples[f"vllm:generation_tokens_total{engine}"]
            assert samples[f"vllm:inter_token_latency_seconds_count{engine}"] == tokens - 3

    run(ask())


def test_gauges_show_the_present() -> None:
    async def ask() -> None:
        knobs = {"itl_ms": 60_000, "max_num_seqs": 2, "block_size": 16, "num_gpu_blocks": 10}
        async with running(**knobs, lora_modules=(Adapter(name="law", path="/law"),)) as sim:
            asked = [await begin(sim, CHAT, STREAM | {"model": model}) for model in ("tiny", "law", "tiny")]
            await until(lambda: sim.metrics.generation_tokens == 2 and sim.scheduler.waiting == 1)
            _, samples = parsed((await get(sim, "/metrics")).body.decode())
            engine = '{engine="0",model_name="tiny"}'
            assert samples[f"vllm:num_requests_running{engine}"] == 2
            assert samples[f"vllm:num_requests_waiting{engine}"] == 1
            assert samples[f"vllm:kv_cache_usage_perc{engine}"] == pytest.approx(0.4)
            lora = next(key for key in samples if key.startswith("vllm:lora_requests_info"))
            assert 'running_lora_adapters="law",waiting_lora_adapters=""' in lora
            assert (await get(sim, "/load")).json == {"server_load": 3}
            for _, writer in asked:
                writer.close()

    run(ask())


def test_buckets_are_those_of_the_capture_and_cumulative() -> None:
    async def ask() -> None:
        async with running() as sim:
            await fetch(sim, CHAT, HELLO | {"max_tokens": 7})
            page = (await get(sim, "/metrics")).body.decode()
            for name, bounds in (
                ("inter_token_latency_seconds", "0.01 0.025 0.05 0.075 0.1 0.15 0.2 0.3 0.4 0.5 0.75 1.0 2.5 5.0 7.5"),
                ("request_prompt_tokens", "1.0 2.0 5.0 10.0 20.0 50.0 100.0 200.0 500.0 1000.0 2000.0 +Inf"),
            ):
                found = re.findall(rf'vllm:{name}_bucket{{engine="0",le="([^"]+)",model_name="tiny"}} (\S+)', page)
                assert " ".join(bound for bound, _ in found).startswith(bounds)
                values = [float(value) for _, value in found]
                assert values == sorted(values)

    run(ask())


def test_values_fall_into_the_bucket_whose_bound_they_do_not_exceed() -> None:
    counted = Histogram((1.0, 2.0))
    for value, times in ((0.5, 1), (1.0, 2), (1.5, 4), (9.0, 8)):
        counted.observe(value, times)
    assert (counted.buckets, counted.count, counted.sum) == ([3, 4, 8], 15, 0.5 + 2 + 6 + 72)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0.0"), (40, "40.0"), (0.25, "0.25"), (999999.5, "999999.5"), (1795963754.35, "1.79596375435e+09")],
)
def test_numbers_are_written_as_the_prometheus_client_does(value: float, text: str) -> None:
    assert _number(value) == text
