"""That what operators are told is so: the metrics, alerts and log lines that texts and config/deploy name."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tailrace.proxy import registry
from tailrace.proxy.metrics import catalogue
from tailrace.proxy.metrics.family import Family, Kind
from tree import ROOT

README = (ROOT / "README.md").read_text()
OPERATIONS = (ROOT / "OPERATIONS.md").read_text()
ALERTS = ROOT / "config/deploy/alerts.yaml"
RULES: list[dict[str, Any]] = [
    rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]
]
METRIC = re.compile(r"\btailrace_\w+")
PROMTOOL = shutil.which("promtool")


def core() -> dict[str, Kind]:
    return {family.name: family.kind for family in vars(catalogue).values() if isinstance(family, Family)}


def given_by(tree: ast.AST) -> Iterator[str]:
    """The names that `metrics` methods give: the text at the beginning of a triple."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef) and function.name == "metrics":
            for node in ast.walk(function):
                if isinstance(node, ast.Tuple) and len(node.elts) == 3 and isinstance(node.elts[0], ast.Constant):
                    yield str(node.elts[0].value)


def of_plugins() -> set[str]:
    names = set()
    for path in (ROOT / "plugins").rglob("*.py"):
        plugin = path.relative_to(ROOT / "plugins").parts[0].removesuffix(".py")
        if plugin in registry.names("plugins"):
            tree = ast.parse(path.read_text())
            names |= {f"tailrace_{plugin}_{name}" for name in given_by(tree)}
            if any(isinstance(node, ast.FunctionDef) and node.name == "dropped" for node in ast.walk(tree)):
                names.add(f"tailrace_{plugin}_dropped_total")
    return names


def rows(heading: str) -> list[list[str]]:
    """The cells of the table with this heading."""
    table = OPERATIONS.partition(f"| {heading} |")[2].partition("\n\n")[0]
    return [[cell.strip() for cell in line.removeprefix("| ").split(" | ")] for line in table.splitlines()[2:]]


def test_plugins_give_metrics_at_all() -> None:
    assert {"tailrace_auth_keys", "tailrace_quota_store_up", "tailrace_billing_waiting"} <= of_plugins()
    assert "tailrace_access_log_dropped_total" in of_plugins()


def test_the_table_has_every_metric_and_no_other() -> None:
    named = [name for row in rows("metric") for name in re.findall(r"`(\w+)`", row[0])]
    assert sorted(named) == sorted({*core(), *of_plugins()})


def test_every_metric_that_is_named_is_there() -> None:
    assert set(METRIC.findall(README + OPERATIONS)) <= {*core(), *of_plugins(), "tailrace_bench"}


@pytest.mark.parametrize("rule", RULES, ids=[rule["alert"] for rule in RULES])
def test_an_alert_asks_for_metrics_that_are_there(rule: dict[str, Any]) -> None:
    buckets = {f"{name}_bucket" for name, kind in core().items() if kind is Kind.HISTOGRAM}
    plain = {name for name, kind in core().items() if kind is not Kind.HISTOGRAM} | of_plugins()
    named = set(METRIC.findall(rule["expr"]))
    assert named <= buckets | plain
    assert named or rule["alert"] == "TailraceDown"
    for name in named:
        counts = name.endswith(("_total", "_bucket"))
        assert bool(re.search(rf"(rate|increase)\({name}\b", rule["expr"])) is counts, f"{name} is no such metric"
    assert rule["labels"]["severity"] in ("page", "ticket")
    assert rule["annotations"]["summary"]


def test_the_table_has_every_alert_and_tells_which_wake_somebody() -> None:
    told = {name: "**" in row[0] for row in rows("alert") for name in re.findall(r"Tailrace\w+", row[0])}
    assert told == {rule["alert"]: rule["labels"]["severity"] == "page" for rule in RULES}


def log_texts() -> set[str]:
    """Every text of the code that may become a log line, with `…` for what is put in."""
    texts = set()
    for folder in ("proxy", "plugins", "worker"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    texts.add(re.sub(r"(?:%(?:\.\d)?[sdgfr])+", "…", node.value))
    return texts


LINES = [re.fullmatch(r"(`+)(.*)\1", row[0].removesuffix(" (sidecar)")) for row in rows("line")]
TEXTS = log_texts()


@pytest.mark.parametrize("line", [found[2].strip() if found else "" for found in LINES])
def test_a_log_line_is_written_somewhere(line: str) -> None:
    assert line in TEXTS


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed")
def test_prometheus_takes_the_rules() -> None:
    check = subprocess.run([PROMTOOL or "", "check", "rules", ALERTS], capture_output=True, text=True, check=False)
    assert check.returncode == 0, check.stdout + check.stderr


CALM = """\
      - {series: 'up{job="tailrace",instance="g"}', values: '1x30'}
      - {series: 'tailrace_worker_eligible{instance="g",worker="a"}', values: '1x30'}
      - {series: 'tailrace_worker_eligible{instance="g",worker="b"}', values: '0x30'}
      - {series: 'tailrace_attempts_total{instance="g",worker="a",outcome="won"}', values: '0+100x30'}
      - {series: 'tailrace_attempts_total{instance="g",worker="a",outcome="refused"}', values: '0+300x30'}
      - {series: 'tailrace_attempts_total{instance="g",worker="a",outcome="failed"}', values: '0+2x30'}
      - {series: 'tailrace_pool_eligible{instance="g",pool="p"}', values: '1x30'}
      - {series: 'tailrace_pool_eligible{instance="g",pool="q"}', values: '2x30'}
      - {series: 'tailrace_worker_up{instance="g",worker="a"}', values: '1x30'}
      - {series: 'tailrace_pool_waiting{instance="g",pool="p"}', values: '0x30'}
      - {series: 'tailrace_pool_waiting{instance="g",pool="q"}', values: '0x30'}
      - {series: 'tailrace_admission_waiting{instance="g",pool="p",class="interactive"}', values: '0x30'}
      - {series: 'tailrace_admission_waiting{instance="g",pool="p",class="batch"}', values: '9x30'}
      - {series: 'tailrace_requests_total{instance="g",route="chat",code="200"}', values: '0+6000x30'}
      - {series: 'tailrace_requests_total{instance="g",route="chat",code="503"}', values: '0+1x30'}
      - {series: 'tailrace_requests_total{instance="g",route="health",code="200"}', values: '0+60000x30'}
      - {series: 'tailrace_requests_total{instance="g",route="health",code="503"}', values: '0+2000x30'}
      - {series: 'tailrace_requests_total{instance="h",route="health",code="503"}', values: '0+60x30'}
      - {series: 'tailrace_streams_cut_total{instance="g"}', values: '0+1x30'}
      - {series: 'tailrace_fallback_answered_total{instance="g",to="model b"}', values: '0+1x30'}
      - {series: 'tailrace_time_to_first_token_seconds_bucket{instance="g",model="m",le="0.5"}', values: '0+999x30'}
      - {series: 'tailrace_time_to_first_token_seconds_bucket{instance="g",model="m",le="0.75"}', values: '0+1000x30'}
      - {series: 'tailrace_time_to_first_token_seconds_bucket{instance="g",model="m",le="+Inf"}', values: '0+1000x30'}
      - {series: 'tailrace_config_reload_failures_total{instance="g"}', values: '3x30'}
      - {series: 'tailrace_retry_refused_total{instance="g",why="retry"}', values: '7x30'}
      - {series: 'tailrace_breaker_state{instance="g",worker="a"}', values: '0x9 2x3 0x9 1x3 0x9'}
      - {series: 'tailrace_breaker_state{instance="g",worker="b"}', values: '0x9 2x2 1x30'}
      - {series: 'tailrace_rescue_lost_total{instance="g",why="request"}', values: '0+1x30'}
      - {series: 'tailrace_rescue_lost_total{instance="g",why="worker"}', values: '2x30'}
"""
TROUBLE = {
    "TailraceDown": ("up{job", "'0x30'"),
    "TailraceNoWorkers": ('eligible{instance="g",worker="a"', "'0x30'"),
    "TailracePoolDown": ('pool="p"', "'0x30'"),
    "TailraceAttemptsFail": ('outcome="failed"', "'0+150x30'"),
    "TailraceErrors": ('route="chat",code="503"', "'0+90x30'"),
    "TailraceFallback": ("fallback_answered", "'0+90x30'"),
    "TailraceStreamsCut": ("streams_cut", "'0+20x30'"),
    "TailraceFirstTokenSlow": ('le="0.5"', "'0+900x30'"),
    "TailraceWorkerLost": ("worker_up", "'0x30'"),
    "TailraceWorkersFull": ('pool_waiting{instance="g",pool="p"', "'2x30'"),
    "TailraceCallsWait": ('class="interactive"', "'2x30'"),
    "TailraceReloadRefused": ("reload_failures", "'0+1x30'"),
    "TailraceRetriesRefused": ("retry_refused", "'0+1x30'"),
    "TailraceCircuitOpen": ('breaker_state{instance="g",worker="a"', "'0x5 2x4 1x1 2x30'"),
    "TailraceStreamsLost": ('rescue_lost_total{instance="g",why="worker"', "'0+1x30'"),
}


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed")
@pytest.mark.parametrize("trouble", [None, *TROUBLE])
def test_alerts_fire_in_trouble_and_not_before(tmp_path: Path, trouble: str | None) -> None:
    series = CALM
    if trouble is not None:
        mark, values = TROUBLE[trouble]
        series = "".join(
            re.sub(r"values: '.*'", f"values: {values}", line) if mark in line else line
            for line in CALM.splitlines(keepends=True)
        )
        assert series != CALM
    queries = "".join(
        f"      - expr: count(ALERTS{{alertname='{name}',alertstate='firing'}}) or vector(0)\n        eval_time: 25m\n"
        f"        exp_samples: [{{labels: '{{}}', value: {int(name == trouble)}}}]\n"
        for name in TROUBLE
    )
    file = tmp_path / "test.yaml"
    file.write_text(
        f"rule_files: ['{ALERTS}']\nevaluation_interval: 1m\ntests:\n  - interval: 1m\n    input_series:\n{series}"
        f"    promql_expr_test:\n{queries}"
    )
    done = subprocess.run([PROMTOOL or "", "test", "rules", file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
