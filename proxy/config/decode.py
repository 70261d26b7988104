"""From nodes to typed, frozen dataclasses."""

from collections.abc import Callable
from typing import Any, TypeVar

from tailrace.proxy.config.flaws import Flaws
from tailrace.proxy.config.node import Node
from tailrace.proxy.config.shape import Bad
from tailrace.proxy.config.shapes import record_of, shape_of
from tailrace.proxy.config.source import Source

T = TypeVar("T")


def decode(cls: type[T], node: Node, flaws: Flaws) -> T | None:
    """A dataclass's instance, or None with at least one flaw noted.

    Faults noted while the file was parsed are taken over, so that none of them can be lost.
    """
    flaws.extend(node.origin.flaws)
    value: T | None = _sound(shape_of(cls).decode, node, flaws)
    return value


def decode_as(annotation: Any, node: Node, flaws: Flaws) -> Any:
    """A value of any annotation that a field may have, or None with at least one flaw noted."""
    return _sound(shape_of(annotation).decode, node, flaws)


def decode_fields(cls: type[T], node: Node, flaws: Flaws) -> T | None:
    """The same without the class's `from_node` hook: what that hook calls for the ordinary shape."""
    flaws.extend(node.origin.flaws)
    value: T | None = _sound(record_of(cls).decode_fields, node, flaws)
    return value


def decode_source(cls: type[T], source: Source) -> T:
    """A whole file's instance, or one ConfigError with everything that is wrong in the file."""
    flaws = Flaws()
    value = decode(cls, source.root, flaws)
    flaws.raise_if_any()
    assert value is not None
    return value


def _sound(read: Callable[[Node, Flaws], Any], node: Node, flaws: Flaws) -> Any:
    """What was read, None where any fault was noted meanwhile."""
    found = Flaws()
    value = read(node, found)
    flaws.extend(found)
    return None if found or isinstance(value, Bad) else value
