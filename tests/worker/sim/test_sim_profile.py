"""Profiles: files that say how fast a machine is with a model."""

from pathlib import Path
from random import Random
from typing import Any

import pytest
from batch_bench import Bench, Listener
from fakes import run, until
from sim_client import CHAT, HELLO, STREAM, begin, fetch, get, running
from tailrace.proxy.config import ConfigError
from tailrace.worker.sim import ManualClock, SimSettings
from tailrace.worker.sim.command import settings_from
from tailrace.worker.sim.engine import scheduler_for
from tailrace.worker.sim.metrics import Metrics
from tailrace.worker.sim.profile import FOLDER, load_profile
from tailrace.worker.sim.sequence import Sampling, Sequence
from tailrace.worker.sim.settings import sized

NAMES = sorted(path.stem for path in FOLDER.glob("*.yaml"))
DEFAULT_PACE = {"ttft_ms": 20.0, "itl_ms": 10.0, "prefill_tokens_per_s": 20_000.0}


def written(folder: Path, **changed: object) -> str:
    text = (FOLDER / "cpu-tiny.yaml").read_text()
    lines = [line for line in text.splitlines() if line.split(":")[0] not in changed]
    file = folder / "own.yaml"
    file.write_text("\n".join([*lines, *(f"{name}: {value}" for name, value in changed.items() if value is not None)]))
    return str(file)


def measured(name: str, answers: int, prompt: int = 200, tokens: int = 100) -> tuple[float, float, float]:
    """TTFT of the first, mean ITL in ms and tokens a second of so many answers at once."""
    settings = sized(SimSettings(profile=name, max_model_len=4096))
    bench = Bench()
    bench.metrics = Metrics(settings.max_model_len)
    bench.scheduler = scheduler_for(settings, bench.clock, bench.metrics, Random(1))  # type: ignore[assignment]
    for each in range(answers):
        ids = [10 + n % 100 for n in range(prompt)]
        seq = Sequence(ids, Sampling(max_tokens=tokens), Listener(bench, str(each)), cache_salt=each)
        bench.scheduler.submit([seq])
    bench.advance(600_000)
    firsts = [bench.times(str(each))[0] for each in range(answers)]
    itl = bench.metrics.itl
    return min(firsts), itl.sum / itl.count * 1000, answers * tokens / max(at for _, at, _ in bench.log) * 1000


def test_profiles_that_come_along_are_sound_and_name_their_sources() -> None:
    assert NAMES == ["cpu-tiny", "h200-8b"]
    for name in NAMES:
        assert load_profile(name).step_ms > 0
        told = False
        for line in (FOLDER / f"{name}.yaml").read_text().splitlines():
            told = told or line.startswith("#")
            assert not line or told, f"{name}: no source stands above {line}"
            told = told and bool(line)


def test_h200_is_as_fast_as_the_published_figures_say() -> None:
    # Of Llama 3.1 8B in FP8 with 200 tokens in: TTFT and ITL alone, and tokens a second of many.
    first, itl, _ = measured("h200-8b", 1)
    assert (first, itl) == (pytest.approx(10.26, rel=0.05), pytest.approx(4.63, rel=0.05))
    assert measured("h200-8b", 50, tokens=200)[2] == pytest.approx(8018, rel=0.25)
    assert measured("h200-8b", 200, tokens=200)[2] == pytest.approx(13_348, rel=0.15)


def test_cpu_is_as_fast_as_the_real_one_was_seen_to_be() -> None:
    first, itl, rate = measured("cpu-tiny", 1, prompt=40)
    assert 15 < first < 25
    assert rate == pytest.approx(140, rel=0.1)
    assert itl < measured("cpu-tiny", 4)[1]
    assert measured("cpu-tiny", 8)[2] == pytest.approx(500, rel=0.15)


def test_sizes_come_from_the_profile_unless_others_are_given() -> None:
    given = sized(SimSettings(profile="h200-8b", num_gpu_blocks=7))
    assert (given.max_num_seqs, given.block_size, given.num_gpu_blocks) == (1024, 16, 7)
    assert sized(SimSettings()) == SimSettings()


def test_server_keeps_the_pace_of_its_profile() -> None:
    async def ask() -> None:
        clock = ManualClock()
        async with running(clock, **DEFAULT_PACE, profile="cpu-tiny", num_gpu_blocks=20, block_size=16) as sim:
            opened = [await begin(sim, CHAT, STREAM | {"max_tokens": 500, "ignore_eos": True}) for _ in range(5)]
            await until(lambda: sim.scheduler.waiting == 5)
            clock.advance(0.1)
            page = (await get(sim, "/metrics")).body.decode()
            assert 'vllm:num_requests_running{engine="0",model_name="tiny"} 4.0' in page
            assert 'vllm:num_requests_waiting{engine="0",model_name="tiny"} 1.0' in page
            assert 'num_gpu_blocks="20"' in page
            clock.advance(1.5)
            page = (await get(sim, "/metrics")).body.decode()
            preempted = sim.metrics.preemptions
            assert preempted > 0
            assert f'vllm:num_preemptions_total{{engine="0",model_name="tiny"}} {preempted:.1f}' in page
            used = float(page.split("vllm:kv_cache_usage_perc{")[1].split("} ")[1].split("\n")[0])
            assert used == pytest.approx(sim.scheduler.kv_usage)
            assert used > 0.6
            for _, writer in opened:
                writer.close()
            await until(lambda: sim.scheduler.running + sim.scheduler.waiting == 0)
            assert sim.scheduler.kv_usage == 0
            # Whose client is gone is counted nowhere, as in vLLM.
            assert sim.metrics.finish_reasons == {}

    run(ask())


def test_the_same_is_said_at_any_pace() -> None:
    async def ask() -> None:
        async with running() as plain, running(**DEFAULT_PACE, profile="h200-8b") as paced:
            body = HELLO | {"max_tokens": 9}
            texts = [(await fetch(sim, CHAT, body)).json["choices"][0]["message"] for sim in (plain, paced)]
            assert texts[0] == texts[1]

    run(ask())


def test_file_of_ones_own(tmp_path: Path) -> None:
    settings = settings_from(["--profile", written(tmp_path, step_ms=3.0), "--num-gpu-blocks-override", "500"])
    assert settings.profile is not None
    assert load_profile(settings.profile).step_ms == 3.0


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"step_ms": None}, "step_ms"),
        ({"step_ms": 0}, "must be more than 0"),
        ({"speed": 3}, "speed"),
        ({"max_num_batched_tokens": 2}, "at least max_num_seqs"),
    ],
)
def test_file_that_makes_no_sense(tmp_path: Path, changed: dict[str, Any], words: str) -> None:
    name = written(tmp_path, **changed)
    with pytest.raises(ConfigError, match=words):
        load_profile(name)


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--profile", "h100-70b"], "h100-70b.yaml"),
        (["--profile", "/no/such.yaml"], "No such file"),
        (["--profile", "h200-8b", "--itl-ms", "5"], "itl_ms: means nothing beside a profile"),
        (["--profile", "cpu-tiny", "--num-gpu-blocks-override", "2"], "blocks of the KV cache hold"),
    ],
)
def test_command_line_that_makes_no_sense(argv: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        settings_from(argv)
    assert words in capsys.readouterr().err
