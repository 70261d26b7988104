"""What an operator sees of streams that went on elsewhere, and of those that did not."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from cases.scene import Scene
from fakes import json_answer, run, sending, until
from lost import ASK, PLUGINS, Engine, losing
from scrape import Scrape


def refusing(*engines: Engine) -> tuple[Engine, ...]:
    for engine in engines:
        engine.on["/tokenize"] = sending(json_answer({"error": {"message": "no", "code": 500}}, 500))
    return engines


async def scraped(scene: Scene, body: dict[str, Any]) -> Scrape:
    await scene.ask(body)
    await scene.outcome()
    return Scrape(scene.process)


def test_the_numbers_of_a_stream_that_went_on() -> None:
    async def body() -> None:
        async with losing(Engine("killed"), Engine()) as scene:
            first, second = [upstream.url for upstream in scene.upstreams]
            scrape = await scraped(scene, ASK)
            assert scrape.value("rescue_streams_total", **{"from": first, "why": "error_event"}) == 1
            assert scrape.value("rescue_lost_total") == 0
            assert scrape.value("attempts_total", worker=first, outcome="failed", why="first") == 1
            assert scrape.value("attempts_total", worker=second, outcome="won", why="rescue") == 1
            assert scrape.value("time_to_first_token_seconds_count") == 1
            assert scrape.value("requests_total", outcome="completed") == 1
            total = scrape.value("stage_seconds_sum")
            assert total == pytest.approx(scrape.value("request_duration_seconds_sum"), abs=1e-6)

    run(body())


LOST: list[tuple[dict[str, Any], tuple[Engine, ...], str, str]] = [
    ({"seed": 7}, (Engine("fin"), Engine()), "request", "cannot be continued exactly (seed)"),
    ({"messages": [{"role": "user", "content": [{"type": "x"}]}]}, (Engine("fin"), Engine()), "answer", "(messages)"),
    ({}, refusing(Engine("fin"), Engine()), "worker", "no other worker could"),
]


@pytest.mark.parametrize(("asked", "engines", "why", "told"), LOST)
def test_the_numbers_of_a_stream_that_did_not(
    asked: dict[str, Any], engines: tuple[Engine, ...], why: str, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def body() -> None:
        with caplog.at_level(logging.INFO, "tailrace"):
            async with losing(*engines) as scene:
                scrape = await scraped(scene, {**ASK, **asked})
                assert scrape.value("rescue_lost_total", why=why) == 1
                assert scrape.value("rescue_streams_total") is None
        (line,) = [record.getMessage() for record in caplog.records if "did not go on" in record.getMessage()]
        assert told in line

    run(body())


def test_a_stream_that_ends_well_is_neither() -> None:
    async def body() -> None:
        async with losing(Engine(), Engine()) as scene:
            scrape = await scraped(scene, ASK)
            assert scrape.value("rescue_streams_total") is None
            assert scrape.value("rescue_lost_total") == 0

    run(body())


def test_the_access_log_has_the_last_worker_and_the_number_of_attempts(tmp_path: Path) -> None:
    file = tmp_path / "access.log"

    async def body() -> None:
        plugins = PLUGINS.replace("rescue,", f"rescue, {{access_log: {{file: '{file}'}}}},")
        async with losing(Engine("fin"), Engine(), plugins=plugins) as scene:
            await scene.ask(ASK)
            await until(lambda: file.exists() and file.read_text().endswith("\n"))
            said = json.loads(file.read_text())
            assert said["attempts"] == 2
            assert said["worker"] == scene.upstreams[1].url
            assert said["ending"] == "completed"
            assert said["usage"] == {"prompt": 3, "completion": 6, "cached": 0}
            assert 0 < said["ttft_ms"] < said["duration_ms"]

    run(body())
