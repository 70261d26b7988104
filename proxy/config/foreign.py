"""Fields whose content somebody else knows: a plugin's entry, a document passed on."""

# ruff: noqa: D102 -- what each method must do stands once, in Shape

from typing import Any

from tailrace.proxy.config.flaws import Flaws
from tailrace.proxy.config.node import Node
from tailrace.proxy.config.secret import MASK, Hidden, Secret, looks_secret, shown
from tailrace.proxy.config.shape import BAD, Definitions, Json, Shape


class AnyPlain(Shape):
    """`Any` and `object`: whatever stands there, as dicts, lists and scalars."""

    words = "any value"

    def decode(self, node: Node, flaws: Flaws) -> Any:
        return BAD if node.broken else node.plain()

    def fits(self, node: Node) -> bool:
        return not node.broken

    def holds(self, value: object) -> bool:
        return True

    def plain(self, value: Any) -> Any:
        return masked(value, by_name=True)

    def schema(self, definitions: Definitions) -> Json:
        return {}


class Untouched(AnyPlain):
    """`Node`: kept as it is, to be decoded by its owner."""

    def decode(self, node: Node, flaws: Flaws) -> Any:
        return BAD if node.broken else node

    def holds(self, value: object) -> bool:
        return isinstance(value, Node)

    def plain(self, value: Any) -> Any:
        return _as_shown(value)


def _as_shown(node: Node) -> Any:
    # Nobody here knows which of its values are credentials, so whatever the environment brought in is masked as well.
    if node.kind == "mapping":
        return {key.text: under(key.text, _as_shown(value)) for key, value in node.items()}
    if node.kind == "sequence":
        return [_as_shown(element) for element in node.elements()]
    return MASK if node.inserted else node.scalar()


def masked(value: Any, *, by_name: bool = False) -> Any:
    """A plain value with its secrets masked; `by_name` those, too, that only the name above them tells."""
    if isinstance(value, dict):
        inside = {key: masked(inner, by_name=by_name) for key, inner in value.items()}
        return {key: under(key, inner) for key, inner in inside.items()} if by_name else inside
    if isinstance(value, list | tuple):
        return [masked(inner, by_name=by_name) for inner in value]
    if isinstance(value, Hidden | Secret):
        return MASK
    return shown(value) if isinstance(value, str) else value


def under(name: str, plain: Any) -> Any:
    """A plain value as it may be shown under a name that the file chose: masked where that speaks of a secret."""
    kept = plain is None or isinstance(plain, bool | dict)
    return plain if kept or not looks_secret(name) else MASK
