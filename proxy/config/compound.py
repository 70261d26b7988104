"""Shapes made of other shapes: bounded values, lists, mappings, alternatives."""

# ruff: noqa: D102 -- what each method must do stands once, in Shape

from collections.abc import Sequence
from typing import Any

from tailrace.proxy.config.bounds import Bound, NotEmpty
from tailrace.proxy.config.flaws import Flaws
from tailrace.proxy.config.foreign import AnyPlain, under
from tailrace.proxy.config.node import Node
from tailrace.proxy.config.secret import Secret
from tailrace.proxy.config.shape import BAD, Bad, Definitions, Json, Shape, part_of
from tailrace.proxy.config.simple import Text


class Bounded(Shape):
    """`Annotated[X, AtLeast(1), …]`."""

    def __init__(self, inner: Shape, bounds: Sequence[Bound]) -> None:
        self.inner = inner
        self._bounds = tuple(bounds)
        self.words = inner.words

    def around(self, inner: Shape) -> "Bounded":
        """The same bounds on another shape."""
        return Bounded(inner, self._bounds)

    def decode(self, node: Node, flaws: Flaws) -> Any:
        if node.is_null and not self.inner.fits(node) and any(isinstance(bound, NotEmpty) for bound in self._bounds):
            # No word of how to write an empty one.
            return self.inner.wrong(node, flaws)
        value = self.inner.decode(node, flaws)
        if isinstance(value, Bad) or value is None or node.absent:
            return value
        content = value.reveal() if isinstance(value, Secret) else value
        faults = [fault for bound in self._bounds if (fault := bound.fault(content, self.inner.show))]
        # A list's or a secret's content would say nothing, or too much.
        got = f", got {node.describe()}" if node.kind == "scalar" and not isinstance(value, Secret) else ""
        for fault in faults:
            flaws.add(node, fault + got)
        return BAD if faults else value

    def fits(self, node: Node) -> bool:
        return self.inner.fits(node)

    def holds(self, value: object) -> bool:
        return self.inner.holds(value)

    def plain(self, value: Any) -> Any:
        return self.inner.plain(value)

    def show(self, value: Any) -> str:
        return self.inner.show(value)

    def schema(self, definitions: Definitions) -> Json:
        schema = self.inner.schema(definitions)
        for bound in self._bounds:
            schema = schema | bound.keywords()
        return schema


class ListOf(Shape):
    """`tuple[X, ...]`, `list[X]` and `frozenset[X]`; one value has to be written as a list, too."""

    def __init__(self, element: Shape, container: type) -> None:
        self.element = element
        self._container = container
        self.words = "a list"

    def or_alone(self) -> "ListOrAlone":
        """The same list, whose one element may stand for it."""
        return ListOrAlone(self.element, self._container)

    def decode(self, node: Node, flaws: Flaws) -> Any:
        if not self.fits(node):
            return self.wrong(node, flaws, "; write [] for an empty list" if node.is_null else "")
        values = [self.element.decode(element, flaws) for element in node.elements()]
        if not any(isinstance(value, Bad) for value in values):
            return self._container(values)
        return BAD if self._container is frozenset else Bad(self._container(map(part_of, values)))

    def fits(self, node: Node) -> bool:
        return node.kind == "sequence" and not node.broken

    def holds(self, value: object) -> bool:
        return isinstance(value, self._container)

    def plain(self, value: Any) -> Any:
        plain = [self.element.plain(element) for element in value]
        return sorted(plain, key=str) if self._container is frozenset else plain

    def schema(self, definitions: Definitions) -> Json:
        return {"type": "array", "items": self.element.schema(definitions)}


class OrAlone:
    """A mark: `Annotated[tuple[X, ...], OrAlone()]` may be written as its one element, without the list."""


class ListOrAlone(ListOf):
    """A list with the mark."""

    def __init__(self, element: Shape, container: type) -> None:
        super().__init__(element, container)
        self.words = f"{element.words}, or a list of such"

    def decode(self, node: Node, flaws: Flaws) -> Any:
        if node.kind == "sequence" or node.is_null or node.broken:
            return super().decode(node, flaws)
        value = self.element.decode(node, flaws)
        return Bad(self._container([part_of(value)])) if isinstance(value, Bad) else self._container([value])

    def fits(self, node: Node) -> bool:
        return super().fits(node) or (not node.is_null and self.element.fits(node))

    def schema(self, definitions: Definitions) -> Json:
        return {"anyOf": [self.element.schema(definitions), super().schema(definitions)]}


class MapOf(Shape):
    """`dict[str, X]`, where the keys are the reader's own names."""

    def __init__(self, key: Shape, value: Shape) -> None:
        self._key = key
        self.value = value
        self.words = "a mapping"

    def decode(self, node: Node, flaws: Flaws) -> Any:
        if not self.fits(node):
            return self.wrong(node, flaws, "; write {} for an empty mapping" if node.is_null else "")
        pairs = [(self._key.decode(k, flaws), self.value.decode(v, flaws)) for k, v in node.items()]
        if any(isinstance(each, Bad) for pair in pairs for each in pair):
            return Bad({k.text: part_of(value) for (k, _), (_, value) in zip(node.items(), pairs, strict=True)})
        return dict(pairs)

    def fits(self, node: Node) -> bool:
        return node.kind == "mapping" and not node.broken

    def holds(self, value: object) -> bool:
        return isinstance(value, dict)

    def plain(self, value: Any) -> Any:
        return {self._key.plain(k): self._shown(k, self.value.plain(v)) for k, v in value.items()}

    def _shown(self, key: Any, plain: Any) -> Any:
        # The name tells nothing where the values are numbers by their type.
        counts = isinstance(plain, int | float) and not isinstance(self.value, AnyPlain)
        return plain if counts else under(str(key), plain)

    def schema(self, definitions: Definitions) -> Json:
        schema: Json = {"type": "object", "additionalProperties": self.value.schema(definitions)}
        names = {} if isinstance(self._key, Text) else self._key.schema(definitions)
        return schema | ({"propertyNames": names} if names else {})


class Either(Shape):
    """A union. Alternatives are tried as written, but plain text, which everything is, comes last."""

    def __init__(self, options: Sequence[Shape], *, optional: bool) -> None:
        self.options = tuple(sorted(options, key=lambda shape: isinstance(shape, Text)))
        self.optional = optional
        self.words = " or ".join(dict.fromkeys(shape.words for shape in self.options))

    def decode(self, node: Node, flaws: Flaws) -> Any:
        if self.optional and node.is_null:
            return None
        if len(self.options) == 1:
            return self.options[0].decode(node, flaws)
        fitting = [shape for shape in self.options if shape.fits(node)]
        if not fitting:
            return self.wrong(node, flaws)
        # A number out of bounds must not pass as text: the first alternative that a scalar fits decides.
        if len(fitting) == 1 or node.kind == "scalar":
            return fitting[0].decode(node, flaws)
        return self._likeliest(fitting, node, flaws)

    def _likeliest(self, fitting: Sequence[Shape], node: Node, flaws: Flaws) -> Any:
        tries: list[Flaws] = []
        for shape in fitting:
            tries.append(Flaws())
            value = shape.decode(node, tries[-1])
            if not isinstance(value, Bad) and not tries[-1]:
                return value
        fewest = min(tries, key=len)
        flaws.extend(fewest)
        return BAD

    def fits(self, node: Node) -> bool:
        return (self.optional and node.is_null) or any(shape.fits(node) for shape in self.options)

    def holds(self, value: object) -> bool:
        return (self.optional and value is None) or any(shape.holds(value) for shape in self.options)

    def plain(self, value: Any) -> Any:
        return None if value is None else self._of(value).plain(value)

    def show(self, value: Any) -> str:
        return "null" if value is None else self._of(value).show(value)

    def schema(self, definitions: Definitions) -> Json:
        schemas = [shape.schema(definitions) for shape in self.options]
        return {"anyOf": [*schemas, *([{"type": "null"}] if self.optional else [])]}

    def _of(self, value: object) -> Shape:
        return next(shape for shape in self.options if shape.holds(value))
