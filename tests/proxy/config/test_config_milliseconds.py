"""A field whose name ends in `_ms` is a number of milliseconds, and takes a duration with its unit, too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import pytest
from tailrace.proxy.config import Above, AtMost, ConfigError, Seconds, decode_source, parse, render, schema, setting
from tailrace.proxy.settings import Gateway


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """Bare, bounded and optional."""

    floor_ms: float = setting(default=30.0)
    wait_ms: Annotated[float, Above(0), AtMost(1000)] = setting(default=2.0)
    budget_ms: Annotated[float, Above(0)] | None = setting(default=None)
    pause: Seconds = setting(default=1.0)
    charms: float = setting(default=1.0)


def read(text: str) -> Any:
    return decode_source(Waits, parse(text, "test.yaml"))


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("floor_ms: 30", "floor_ms", 30.0),
        ("floor_ms: 30ms", "floor_ms", 30.0),
        ("floor_ms: 1.5s", "floor_ms", 1500.0),
        ("wait_ms: 0.1s", "wait_ms", 100.0),
        ("budget_ms: 7ms", "budget_ms", 7.0),
        ("budget_ms: ~", "budget_ms", None),
        ("pause: 30", "pause", 30.0),
    ],
)
def test_what_it_takes(text: str, field: str, value: float | None) -> None:
    read_value = getattr(read(text), field)
    assert read_value == value
    assert f"{field}: {'null' if value is None else ''}" in render(read(text))
    assert read(render(read(text))) == read(text)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("floor_ms: soon", 'expected milliseconds such as 30, or a duration such as "30ms", got "soon"'),
        ("wait_ms: 2s", 'must be at most 1000 ms, got "2s"'),
        ("wait_ms: -1", "must be above 0 ms, got -1"),
        ("charms: 30ms", 'expected a number, got "30ms"'),
        ("pause: soon", 'expected a duration such as 5 (seconds), "250ms"'),
    ],
)
def test_what_it_does_not(text: str, fault: str) -> None:
    with pytest.raises(ConfigError) as told:
        read(text)
    assert fault in str(told.value)


def test_editors_know() -> None:
    described = str(schema(Waits))
    assert described.count("(?:ms|s|m|h|d)") == 4


def test_beside_a_plugin_too() -> None:
    text = "listen: 127.0.0.1:0\nmodels: {m: {workers: ['http://a:1']}}\nplugins: [{route: {}, budget_ms: 0.25s}]\n"
    [entry] = decode_source(Gateway, parse(text, "test.yaml")).plugins
    assert entry.terms.budget_ms == 250.0
