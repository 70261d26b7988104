"""A dataclass field that says what it is for."""

import dataclasses
from collections.abc import Callable
from typing import Any, Final, TypeVar, overload

T = TypeVar("T")

HELP: Final = "tailrace.help"
WHY: Final = "tailrace.why"
KEY: Final = "tailrace.key"


@overload
def setting(*, default: T, help: str = "", why: str = "", key: str = "") -> T: ...
@overload
def setting(*, default_factory: Callable[[], T], help: str = "", why: str = "", key: str = "") -> T: ...
@overload
def setting(*, help: str = "", why: str = "", key: str = "") -> Any: ...
def setting(*, help: str = "", why: str = "", key: str = "", **default: Any) -> Any:  # noqa: A002
    """`dataclasses.field` with one line of help, and the reason for its default.

    `key` is the key in the file where it differs from the field's name, which cannot be a Python keyword.
    """
    return dataclasses.field(**default, metadata={HELP: help, WHY: why, KEY: key})


def is_required(field: "dataclasses.Field[Any]") -> bool:
    """True for a field that has no default."""
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def default_of(field: "dataclasses.Field[Any]") -> Any:
    """A field's default, `MISSING` for a required one."""
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def help_of(field: "dataclasses.Field[Any]") -> str:
    """One line on what the field is for."""
    return str(field.metadata.get(HELP, ""))


def why_of(field: "dataclasses.Field[Any]") -> str:
    """Why its default is what it is."""
    return str(field.metadata.get(WHY, ""))


def key_of(field: "dataclasses.Field[Any]") -> str:
    """The key that stands for the field in a file."""
    return str(field.metadata.get(KEY) or field.name)
