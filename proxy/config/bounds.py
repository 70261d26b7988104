"""What a value must satisfy beside its type: `Annotated[int, AtLeast(1)]`."""

# ruff: noqa: D102 -- what each method must do stands once, in Bound

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Protocol, TypeAlias, runtime_checkable

from tailrace.proxy.config.shape import INTERPOLATED, Json


@runtime_checkable
class Bound(Protocol):
    """One condition on a value."""

    def fault(self, value: Any, show: Callable[[Any], str]) -> str | None:
        """What must hold and does not; `show` writes a limit in the field's own unit."""

    def keywords(self) -> Json:
        """The same condition for a JSON schema."""


@dataclass(frozen=True, slots=True)
class AtLeast:
    """Not below a limit."""

    limit: float

    def fault(self, value: Any, show: Callable[[Any], str]) -> str | None:
        return None if value >= self.limit else f"must be at least {show(self.limit)}"

    def keywords(self) -> Json:
        return {"minimum": self.limit}


@dataclass(frozen=True, slots=True)
class AtMost:
    """Not beyond a limit."""

    limit: float

    def fault(self, value: Any, show: Callable[[Any], str]) -> str | None:
        return None if value <= self.limit else f"must be at most {show(self.limit)}"

    def keywords(self) -> Json:
        return {"maximum": self.limit}


@dataclass(frozen=True, slots=True)
class Above:
    """Strictly beyond a limit."""

    limit: float

    def fault(self, value: Any, show: Callable[[Any], str]) -> str | None:
        return None if value > self.limit else f"must be above {show(self.limit)}"

    def keywords(self) -> Json:
        return {"exclusiveMinimum": self.limit}


@dataclass(frozen=True, slots=True)
class NotEmpty:
    """Text, a list or a mapping with something in it."""

    def fault(self, value: Any, show: Callable[[Any], str]) -> str | None:
        return None if len(value) else "must not be empty"

    def keywords(self) -> Json:
        return {"minLength": 1, "minItems": 1, "minProperties": 1}


@dataclass(frozen=True, slots=True)
class Matching:
    """Text of a form: a whole match of the pattern; `words` say the form in a message."""

    pattern: str
    words: str

    def fault(self, value: Any, show: Callable[[Any], str]) -> str | None:
        return None if re.fullmatch(self.pattern, value) else f"must be {self.words}"

    def keywords(self) -> Json:
        return {"pattern": f"^(?:{self.pattern})$|{INTERPOLATED}"}


Port: TypeAlias = Annotated[int, AtLeast(0), AtMost(65535)]
"""A TCP port; 0 lets the kernel choose."""
Share: TypeAlias = Annotated[float, AtLeast(0), AtMost(1)]
"""A part of a whole."""
