"""Scenario files are read strictly, and those of the repository can be played."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from conftest import LOADTESTS
from scenario.plan import Limit, PlanError, merged, read
from tailrace.proxy.config import decode_source, parse
from tailrace.proxy.settings import Gateway

FILES = sorted((LOADTESTS / "scenarios").glob("[!_]*.yaml"))
FAILURE_PLUGINS = ("fallback", "breaker", "hedge", "retry")
LEAST = """
about: nothing
load: {chat: {}}
phases: [{name: steady, seconds: 1, load: {chat: 0.5}}]
bars: [{figure: errors, at_most: 0}]
"""


def written(folder: Path, text: str, name: str = "one.yaml") -> Path:
    file = folder / name
    file.write_text(text)
    return file


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.stem)
@pytest.mark.parametrize("short", [False, True])
def test_the_files_of_the_repository_can_be_read(file: Path, short: bool) -> None:
    scenario = read(file, short=short)
    assert scenario.bars
    assert sum(phase.seconds * phase.times for phase in scenario.phases) < (150 if short else 700)


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.stem)
def test_their_chains_meet_failures_in_the_documented_order(file: Path) -> None:
    config = {"listen": ["127.0.0.1:0"], "models": {"sim": {"workers": ["http://127.0.0.1:1"]}}}
    gateway = decode_source(Gateway, parse(yaml.safe_dump(config | read(file).gateway.config), file.name))
    names = [entry.name for entry in gateway.plugins]
    assert [name for name in names if name in FAILURE_PLUGINS] == ["breaker", "hedge", "retry"]


def test_a_word_that_means_nothing_is_named_with_its_place(tmp_path: Path) -> None:
    text = LEAST.replace("seconds: 1", "seconds: 1, secs: 2")
    with pytest.raises(PlanError, match=r"phases\[0\]: 'secs' means nothing here"):
        read(written(tmp_path, text))


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("{chat: 0.5}", "{talk: 0.5}", "there is no load 'talk'"),
        ("at_most: 0", "at_most: {of: before}", "there is no phase 'before'"),
        ("at_most: 0", "at_most: 0, at_least: 1", "either at_most or at_least"),
        ("at_most: 0", "load: talk, at_most: 0", "there is no load 'talk'"),
        ("seconds: 1", "seconds: soon", "'soon' is not what is expected here"),
        ("seconds: 1", "seconds: 1, window: [-1, 1]", "a window needs an event"),
        ("seconds: 1", "seconds: 1, events: [{after: 0, do: explode}]", "'explode' is none of kill"),
        ("about: nothing", "about: 1", "1 is not what is expected here"),
        ("figure: errors", "figure: erors", "'erors' is none of requests"),
    ],
)
def test_what_cannot_be_meant_is_refused(tmp_path: Path, old: str, new: str, told: str) -> None:
    with pytest.raises(PlanError, match=told):
        read(written(tmp_path, LEAST.replace(old, new)))


def test_a_file_stands_on_another_and_its_short_form_on_itself(tmp_path: Path) -> None:
    written(tmp_path, LEAST + "fleet: {workers: 3, engine: {itl_ms: 5}}\n", "base.yaml")
    text = """
based_on: base.yaml
fleet: {engine: {ttft_ms: 7}}
bars: [{figure: requests, at_least: 100}, {figure: ttft_p99_ms, phase: steady, at_most: {times: 2, of: steady}}]
short: {phases: {steady: {seconds: 0.5}}, bars: {requests: {at_least: 10}}}
"""
    whole, short = (read(written(tmp_path, text), short=short) for short in (False, True))
    assert whole.fleet.workers == 3
    assert whole.fleet.engine == {"itl_ms": 5, "ttft_ms": 7}
    assert (whole.phases[0].seconds, short.phases[0].seconds) == (1.0, 0.5)
    assert (whole.bars[0].at_least, short.bars[0].at_least) == (100.0, 10.0)
    assert short.bars[1].at_most == Limit(times=2.0, of="steady")


def test_mappings_are_merged_and_lists_replaced() -> None:
    assert merged({"a": {"x": 1, "y": 2}, "b": [1]}, {"a": {"y": 3}, "b": [2]}) == {"a": {"x": 1, "y": 3}, "b": [2]}


@pytest.mark.parametrize("played", [False, True])
@pytest.mark.parametrize("short", ["phases: {stedy: {seconds: 1}}", "bars: {requets: {at_least: 1}}"])
def test_a_short_form_changes_only_what_is_there(tmp_path: Path, short: str, played: bool) -> None:
    text = f"""
about: x
load: {{chat: {{}}}}
phases: [{{name: steady, seconds: 1, load: {{chat: 1}}}}]
bars: [{{figure: requests, at_least: 1}}]
short: {{{short}}}
"""
    with pytest.raises(PlanError, match="there is nothing called"):
        read(written(tmp_path, text), short=played)


@pytest.mark.parametrize("played", [False, True])
def test_a_short_form_is_read_as_strictly(tmp_path: Path, played: bool) -> None:
    with pytest.raises(PlanError, match="'phses' means nothing here"):
        read(written(tmp_path, LEAST + "short: {phses: {steady: {seconds: 1}}}"), short=played)
