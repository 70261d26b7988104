"""A dataclass field that says what it is for."""

import dataclasses
from collections.abc import Callable
from typing import Any, Final, TypeVar, overload

T = TypeVar("T")

HELP: Final = "tailrace.help"
WHY: Final = "tailrace.why"


@overload
def setting(*, default: T, help: str = "", why: str = "") -> T: ...
@overload
def setting(*, default_factory: Callable[[], T], help: str = "", why: str = "") -> T: ...
@overload
def setting(*, help: str = "", why: str = "") -> Any: ...
def setting(*, help: str = "", why: str = "", **default: Any) -> Any:  # noqa: A002
    """`dataclasses.field` with one line of help, and the reason for its default."""
    return dataclasses.field(**default, metadata={HELP: help, WHY: why})


def help_of(field: "dataclasses.Field[Any]") -> str:
    """One line on what the field is for."""
    return str(field.metadata.get(HELP, ""))


def why_of(field: "dataclasses.Field[Any]") -> str:
    """Why its default is what it is."""
    return str(field.metadata.get(WHY, ""))
