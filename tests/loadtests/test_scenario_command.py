"""A scenario in small, from the command line to its JSON."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import orjson
import pytest
from conftest import LOADTESTS

SMALL = """
about: One of two engines is killed and comes back.
fleet: {workers: 2, engine: {itl_ms: 2, ttft_ms: 5, max_num_seqs: 8}}
gateway: {config: {pre_stop: 0, plugins: [{route: {}}]}}
load: {chat: {prompts: 4, words: 20, answers: [4, 300], per_s: 10}}
phases:
  - {name: steady, seconds: 1, load: {chat: 1}}
  - name: kill
    seconds: 2
    load: {chat: 1}
    window: [-0.5, 1]
    events: [{after: 0.5, do: kill, worker: 2}, {after: 1.5, do: start, worker: same}]
bars:
  - {figure: inexact, at_most: 0}
  - {figure: requests, at_least: 1000}
"""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(LOADTESTS / "run_scenario.py"), "--quiet", "0", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=100)


@pytest.mark.timeout(110)
def test_a_scenario_is_played_and_judged(tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(SMALL)
    done = run(str(tmp_path / "small.yaml"), "--json", str(tmp_path))
    assert done.returncode in (1, 3), done.stdout + done.stderr
    assert "MISSED  requests in the whole run" in done.stdout
    report = orjson.loads((tmp_path / "small-tailrace.json").read_bytes())
    assert report["status"] == ("void" if done.returncode == 3 else "missed")
    assert [bar["holds"] for bar in report["bars"]] == [True, False]
    assert 10 < report["figures"]["all"]["all"]["requests"] < 60
    assert any("killed engine of worker 2 (bare)" in told for told in report["happenings"])
    assert "last_sent_ms" in report["figures"]["kill"]["all"]


def test_what_cannot_be_played_is_said(tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(SMALL.replace("route", "rout"))
    done = run(str(tmp_path / "small.yaml"))
    assert done.returncode == 2
    assert "there is no plugin 'rout'" in done.stdout
    assert run("no-such").returncode == 2
