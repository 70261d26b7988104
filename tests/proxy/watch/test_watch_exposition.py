"""The load figures, from what a real vLLM sent."""

import gzip
from pathlib import Path

import pytest
from tailrace.proxy.watch.exposition import Load, parse


def capture(name: str) -> bytes:
    return gzip.decompress((Path(__file__).parent / "captures" / f"{name}.txt.gz").read_bytes())


@pytest.mark.parametrize(
    ("name", "load"),
    [
        ("metrics_under_load", Load(4, 4, 0.0009766817238432424, 1510.0, 2344.0)),
        ("metrics_overloaded", Load(4, 2, 0.0018311105685597795, 2742.0, 1626.0)),
        ("metrics_embedding_model", Load(0, 0, 0.0, 0.0, 2893.0)),
    ],
)
def test_a_real_exposition_is_read(name, load):
    assert parse(capture(name)) == load


def test_parts_of_an_engine_are_summed_and_the_fullest_cache_counts():
    text = b"""# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="a"} 3.0
vllm:num_requests_running{engine="1",model_name="a"} 4.0
vllm:num_requests_waiting{engine="0",model_name="a"} 1.0
vllm:num_requests_waiting{engine="1",model_name="a"} 2.0
vllm:kv_cache_usage_perc{engine="0",model_name="a"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="a"} 0.75
"""
    assert parse(text) == Load(7, 3, 0.75, 0.0, 0.0)


def test_the_older_name_of_the_cache_counts_where_the_newer_is_absent():
    text = b"vllm:num_requests_running 1\nvllm:gpu_cache_usage_perc 0.5\n"
    assert parse(text).kv_use == 0.5
    assert parse(text + b"vllm:kv_cache_usage_perc 0.25\n").kv_use == 0.25


@pytest.mark.parametrize(
    ("text", "running"),
    [
        (b'vllm:num_requests_running{m="a b} c"} 5.0 1795964320000', 5),
        (b"vllm:num_requests_running 5", 5),
        (b"vllm:num_requests_running_total 9\nvllm:num_requests_running 5\r\n", 5),
        (b"vllm:num_requests_running NaN\nvllm:num_requests_waiting 1", 0),
        (b"vllm:num_requests_running -3\nvllm:num_requests_waiting 1", 0),
        (b"vllm:num_requests_running\nvllm:num_requests_running{ 1\nvllm:num_requests_waiting 1", 0),
    ],
)
def test_unusual_lines(text, running):
    assert parse(text).running == running


@pytest.mark.parametrize("text", [b"", b"<html>", b"process_cpu_seconds_total 3.0\n", b"\xff\xfe" * 50])
def test_metrics_of_something_else_tell_no_load(text):
    assert parse(text) is None
