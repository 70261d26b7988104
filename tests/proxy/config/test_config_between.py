"""Faults between fields: at the line of the entry concerned, and together with whatever else is wrong around them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar

import pytest
from config_samples import flaws_of
from tailrace.proxy.config import At, Flaws, OrAlone, decode, decode_source, parse


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    shorthand: ClassVar[str] = "address"
    address: str
    file: Path | None = None

    def check(self) -> Iterable[str | At]:
        if self.address == "nowhere":
            yield At("no such place", "address")

    def look(self) -> Iterable[str | At]:
        if self.file is not None and not self.file.exists():
            yield At("not there", "file")


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    pool: str
    size: int = 1

    def check(self) -> Iterable[str | At]:
        if self.size < 0:
            yield "too small"


@dataclass(frozen=True, slots=True, kw_only=True)
class House:
    models: dict[str, Model]
    doors: Annotated[tuple[Door, ...], OrAlone()] = ()
    pools: tuple[str, ...] = ("a",)
    limits: dict[str, int] = field(default_factory=dict)

    def check(self) -> Iterable[str | At]:
        for name, model in self.models.items():
            if model.pool not in self.pools:
                yield At(f"there is no pool '{model.pool}'", "models", name, "pool")
        for number, door in enumerate(self.doors):
            if door.address == "taken":
                yield At("taken", "doors", number, "address")
        if "low" in self.limits:
            yield At("low without high", "limits")
        if len(self.pools) > 2:
            yield "too many pools"


def found(text: str) -> list[str]:
    return flaws_of(text, cls=House)


MODEL = "models:\n  m:\n    pool: a\n"

CASES = {
    "below a key": ("models:\n  m:\n    size: 1\n    pool: x\n", ["4: models.m.pool: there is no pool 'x'"]),
    "in a list": (MODEL + "doors:\n- address: a\n- taken\n", ["6: doors[1]: taken"]),
    "in a list of one that was left out": (MODEL + "doors:\n  address: taken\n", ["5: doors.address: taken"]),
    "a block is blamed at its key": (MODEL + "limits:\n  low: 1\n", ["4: limits: low without high"]),
    "the whole": ("models: {m: {pool: a}}\npools: [a, b, c]\n", ["1: too many pools"]),
    "a default has no line": ("pools: [b]\nmodels:\n  m: {pool: a}\n", ["3: models.m.pool: there is no pool 'a'"]),
    "an alias is blamed where it stands": (
        "doors: [{address: &t taken}]\nmodels: {m: {pool: *t}}\n",
        ["1: doors[0].address: taken", "2: models.m.pool: there is no pool 'taken'"],
    ),
    "an unknown key beside it": (
        "models:\n  m:\n    pool: x\n    syze: 1\nzzz: 1\n",
        [
            "3: models.m.pool: there is no pool 'x'",
            "4: models.m: unknown key `syze`, did you mean `size`?",
            "5: unknown key `zzz`, known here: models, doors, pools, limits",
        ],
    ),
    "a fault between the fields further down": (
        "models:\n  m: {pool: x}\n  n: {pool: a, size: -1}\n",
        ["2: models.m.pool: there is no pool 'x'", "3: models.n: too small"],
    ),
    "a value that cannot be read ends what depends on it, and no more": (
        "models:\n  m: {pool: x}\nlimits: {low: x}\n",
        [
            "2: models.m.pool: there is no pool 'x'",
            '3: limits.low: expected a whole number, got "x"',
            "3: limits: low without high",
        ],
    ),
    "the names of values that cannot be read are known": (
        "models:\n  m: {pool: x}\n  n: {size: []}\npools: [a]\ndoors: [{address: []}, taken]\n",
        [
            "2: models.m.pool: there is no pool 'x'",
            "3: models.n.size: expected a whole number, got a list",
            "3: models.n: missing required key `pool`",
            "5: doors[0].address: expected text, got a list",
        ],
    ),
    "a list with a hole in it ends a check there": (
        "models:\n  m: {pool: x}\npools: [{}]\n",
        ["3: pools[0]: expected text, got a mapping"],
    ),
    "a missing key": ("doors: nowhere\n", ["1: doors: no such place", "1: missing required key `models`"]),
}  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), CASES.values(), ids=CASES)
def test_faults_are_told_at_their_lines_all_at_once(text: str, expected: list[str]) -> None:
    assert found(text) == expected


def test_what_is_missing_outside_is_looked_for_only_on_demand(tmp_path: Path) -> None:
    text = MODEL + "doors:\n- {address: a, file: none.pem}\n"
    assert found(text) == []
    source = parse(text, str(tmp_path / "t.yaml"), look=True)
    flaws = Flaws()
    assert decode(House, source.root, flaws) is None
    assert [(flaw.line, flaw.text) for flaw in flaws] == [(5, "doors[0].file: not there")]
    (tmp_path / "none.pem").touch()
    assert decode_source(House, source).doors[0].file == tmp_path / "none.pem"


def test_a_check_that_breaks_by_itself_is_a_bug_and_not_swallowed() -> None:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Broken:
        size: int = 1

        def check(self) -> Iterable[str]:
            raise ZeroDivisionError
            yield

    with pytest.raises(ZeroDivisionError):
        decode_source(Broken, parse("size: 2", "t.yaml"))


def test_a_fault_with_a_path_can_be_read() -> None:
    assert str(At("wrong", "doors", 1, "file")) == "doors[1].file: wrong"
    assert str(At("wrong")) == "wrong"
