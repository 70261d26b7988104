"""What a shape is: the run-time side of a field's type, to read it, to write it and to describe it."""

from abc import ABC, abstractmethod
from typing import Any, Final, TypeAlias, final

from tailrace.proxy.config.flaws import Flaws
from tailrace.proxy.config.node import Node

Json: TypeAlias = dict[str, Any]
Definitions: TypeAlias = dict[type, tuple[str, Json]]
"""Named schemas of the dataclasses met so far."""


@final
class Bad:
    """Stands for a value that could not be decoded; why is among the flaws.

    `part` is what could be decoded of it, for checks of what stands around it, with GAP for the rest; None if nothing.
    """

    __slots__ = ("part",)

    def __init__(self, part: Any = None) -> None:
        self.part = part


BAD: Final = Bad()


@final
class Gap:
    """A part that could not be decoded: whoever looks at it fails, and has nothing to say."""

    __slots__ = ()

    def _unknown(self, *_: object) -> Any:
        raise AttributeError("it could not be decoded")

    __bool__ = __eq__ = __format__ = __hash__ = __str__ = __repr__ = _unknown


GAP: Final = Gap()


def part_of(value: Any) -> Any:
    """A decoded value, or what there is of it."""
    if not isinstance(value, Bad):
        return value
    return GAP if value.part is None else value.part


INTERPOLATED: Final = r"\$\{"
"""A schema pattern: a reference stands there, its value cannot be judged in an editor."""


class Shape(ABC):
    """One type that a field may have."""

    words: str
    """What is expected, for "expected …, got …"."""

    @abstractmethod
    def decode(self, node: Node, flaws: Flaws) -> Any:
        """The value at a node, or a Bad with at least one flaw noted."""

    @abstractmethod
    def fits(self, node: Node) -> bool:
        """True if the node can be meant for this shape: a union asks, to blame the right alternative."""

    @abstractmethod
    def holds(self, value: object) -> bool:
        """True if a decoded value is one of this shape's."""

    @abstractmethod
    def plain(self, value: Any) -> Any:
        """A decoded value as dicts, lists and scalars that decode to it again; secrets masked."""

    @abstractmethod
    def schema(self, definitions: Definitions) -> Json:
        """The JSON schema of what an editor should accept."""

    def show(self, value: Any) -> str:
        """A value inside a message."""
        return str(self.plain(value))

    def wrong(self, node: Node, flaws: Flaws, hint: str = "") -> Bad:
        """Note that something else stands there."""
        if not node.broken:
            flaws.add(node, f"expected {self.words}, got {node.describe()}{hint}")
        return BAD
