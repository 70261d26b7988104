"""The table of defaults, and the fields it is made of."""

import dataclasses
from dataclasses import dataclass
from typing import Any

import pytest
from config_samples import Branch, Limits, Sample
from tailrace.proxy.config import Seconds, decode_source, defaults, parse, schema, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    quick: Limits = dataclasses.field(default_factory=lambda: Limits(least=0.1, most=2.0))
    needed: Limits
    maybe: Limits | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Odd:
    value: complex = 1j


def rows(cls: type) -> dict[str, tuple[str, str]]:
    return {name: (default, why) for name, default, why in defaults(cls)}


def test_each_setting_has_its_row() -> None:
    table = rows(Sample)
    assert table["patience"] == ("250ms", "")
    assert table["words"] == ('["a", "b"]', "")
    assert table["key"] == ("null", "")
    assert table["network"] == ("10.0.0.0/8", "")
    assert table["limits.least"] == ("1s", "")
    assert table["listen"] == ("[]", "")
    assert table["listen[].address"] == ("required", "")
    assert table["listen[].backlog"] == ("1024", "A burst fits.")
    assert table["weights"] == ('{"m": 0.25}', "Weight by model.")
    assert "limits" not in table
    assert "tree.branches[].label" not in table


def test_a_nested_default_is_the_owners() -> None:
    table = rows(Group)
    assert (table["quick.least"], table["quick.most"]) == (("100ms", ""), ("2s", ""))
    assert (table["needed"], table["needed.least"]) == (("required", ""), ("1s", ""))
    assert (table["maybe"], table["maybe.least"]) == (("null", ""), ("1s", ""))


def test_a_class_that_holds_itself_ends() -> None:
    assert list(rows(Branch)) == ["label", "branches"]


def test_setting_is_a_field() -> None:
    limit: Seconds = setting(default=5.0, help="h", why="w")
    assert isinstance(limit, dataclasses.Field)
    with pytest.raises(ValueError, match="both default and default_factory"):
        setting(default=1, default_factory=int)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    "use", [schema, lambda cls: list(defaults(cls)), lambda cls: decode_source(cls, parse("value: 1", "t"))]
)
def test_a_type_that_no_file_can_hold_is_the_programmers_fault(use: Any) -> None:
    with pytest.raises(TypeError, match=r"Odd.value: no configuration can hold a <class 'complex'>"):
        use(Odd)
