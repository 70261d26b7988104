"""A void run is played again, on the same stage unless its fleet has grown."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from scenario import direct
from scenario.direct import Direction
from scenario.place import Place
from scenario.plan import Bar, Fleet, Load, Phase, Scenario

PHASES = (Phase(name="steady", seconds=1, load={"chat": 1.0}),)
BARS = (Bar(figure="errors", at_most=0.0),)


class Stages:
    """Stands in for stages: counts them, and whether each was ended before the next began."""

    def __init__(self, spare: int) -> None:
        self.spare = spare
        self.begun = self.ended = 0

    def __call__(self, *_: Any) -> Any:
        assert self.begun == self.ended
        stage: Any = SimpleNamespace(
            gateways=[SimpleNamespace(headers={})], workers=[], spares=list(range(self.spare)), running=self.running
        )
        return stage

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        self.begun += 1
        yield
        self.ended += 1


def played(monkeypatch: pytest.MonkeyPatch, spare: int, void: int, tries: int) -> tuple[int, int, bool]:
    """How many plays and stages there were, and whether the report is void, where so many plays in a row would be."""
    stages = Stages(spare)
    plays = 0

    async def nothing(*_: Any) -> dict[str, str]:
        return {}

    async def play(stage: Any, *_: Any) -> Any:
        nonlocal plays
        plays += 1
        stage.spares.clear()
        return SimpleNamespace(void=["busy"] if plays <= void else [])

    monkeypatch.setattr(direct, "Stage", stages)
    monkeypatch.setattr(direct, "play", play)
    monkeypatch.setattr(direct, "prefer", lambda *_: None)
    monkeypatch.setattr(direct, "_right_answers", nothing)
    monkeypatch.setattr(direct, "_quiet", nothing)
    monkeypatch.setattr(direct.capacity, "known", lambda *_: {"chat": 1.0})
    scenario = Scenario(about="x", fleet=Fleet(spare=spare), load={"chat": Load()}, phases=PHASES, bars=BARS)
    place = Place(Path(), False, ())
    report = asyncio.run(direct._direct(scenario, place, Direction("tailrace", Path(), 0.0, tries)))
    return plays, stages.ended, bool(report.void)


@pytest.mark.parametrize(
    ("spare", "void", "tries", "expected"),
    [
        (0, 0, 2, (1, 1, False)),
        (0, 1, 3, (2, 1, False)),
        (0, 9, 3, (3, 1, True)),
        (1, 1, 3, (2, 2, False)),
        (1, 9, 3, (3, 3, True)),
        (1, 9, 1, (1, 1, True)),
    ],
)
def test_void_runs(
    monkeypatch: pytest.MonkeyPatch, spare: int, void: int, tries: int, expected: tuple[int, int, bool]
) -> None:
    assert played(monkeypatch, spare, void, tries) == expected
