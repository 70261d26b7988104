"""What the YAML may say of routing, and what `check` says to it."""

from __future__ import annotations

import pytest
from fakes import decoded
from tailrace.plugins.route import Config
from tailrace.plugins.route.plugin import Route, TailRoute
from tailrace.proxy.config import ConfigError
from tailrace.proxy.pipeline import Link, Pipeline


def gateway(route: str) -> str:
    return "listen: 127.0.0.1:0\nmodels: {m: {workers: ['http://127.0.0.1:9']}}\nplugins:\n  - route:\n" + "".join(
        f"      {line}\n" for line in route.split("; ")
    )


@pytest.mark.parametrize(
    ("route", "line", "said"),
    [
        ("policy: least_inflight; prefix: 2KiB", 6, "`prefix` is for `policy: tail`; least_inflight does without"),
        ("region: eu", 5, "`region` is for `policy: tail`"),
        ("policy: random; load_factor: 2", 6, "`load_factor` is for"),
        ("policy: tail; session_headers: [x-a, 'x b']", 6, "'x b' cannot be the name of a header"),
        ("policy: tail; load_factor: 0.5", 6, "1"),
        ("policy: tail; decay: 0s", 6, "0"),
        ("policy: tail; prefix: 1MiB", 6, "at most 16KiB"),
        ("policy: fastest", 5, "tail"),
        ("policy: tail; penalties: 5s", 6, "penalty"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_line(route: str, line: int, said: str):
    with pytest.raises(ConfigError) as caught:
        decoded(gateway(route))
    text = str(caught.value)
    assert f"test.yaml:{line}" in text
    assert said in text


@pytest.mark.parametrize(
    ("route", "meant"),
    [
        ("policy: tail", Config(policy="tail")),
        (
            "policy: tail; prefix: 0; session_headers: []; session_fields: []",
            Config(policy="tail", prefix=0, session_headers=(), session_fields=()),
        ),
        (
            "policy: tail; region: eu-west-1; region_margin: 100ms; decay: 20s; penalty: 0s; load_factor: 1",
            Config(policy="tail", region="eu-west-1", region_margin=0.1, decay=20.0, penalty=0.0, load_factor=1.0),
        ),
        ("policy: least_inflight; decay: 10s", Config()),
    ],
)
def test_what_can_be_meant_is_taken(route: str, meant: Config):
    assert decoded(gateway(route)).plugins[0].config == meant


def test_only_what_learns_takes_part_in_more_than_the_choice():
    tail = Route(Config(policy="tail"))
    assert isinstance(tail, TailRoute)
    link = Link(tail, "route")
    assert Pipeline.of([link]).phases_of(link) == [
        "score_workers",
        "nominate",
        "on_chosen",
        "on_commit",
        "on_attempt_end",
        "on_complete",
    ]


def test_metrics_are_named_whatever_has_happened():
    named = {(name, *labels.values()): value for name, labels, value in Route(Config(policy="tail")).metrics()}
    assert named == {
        ("chosen_total", "prefix"): 0,
        ("chosen_total", "second"): 0,
        ("chosen_total", "session"): 0,
        ("chosen_total", "draw"): 0,
        ("spilled_total",): 0,
        ("backlog_tokens",): 0,
    }
