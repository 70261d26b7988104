"""The shape of a dataclass: known keys, required keys, faults between fields."""

# ruff: noqa: D102 -- what each method must do stands once, in Shape

import dataclasses
import difflib
import re
import typing
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any, Final

from tailrace.proxy.config.flaws import ConfigError, Flaws, name
from tailrace.proxy.config.foreign import masked
from tailrace.proxy.config.node import Node
from tailrace.proxy.config.place import At, spot_of
from tailrace.proxy.config.record_schema import define, object_schema
from tailrace.proxy.config.setting import default_of, help_of, is_required, key_of
from tailrace.proxy.config.shape import BAD, Bad, Definitions, Json, Shape
from tailrace.proxy.config.units import in_milliseconds

# Names an editor's schema inside the file itself; it says nothing to the program.
SCHEMA_KEY: Final = "$schema"
_LISTED_KEYS: Final = 30
_CHECK: Final = re.compile(r"check(_|$)")


class Record(Shape):
    """A frozen dataclass, with the hooks it may have; the package's docstring lists them.

    A value with a fault between its fields, or with a key too many, is decoded all the same: what is wrong around it
    can then be told, too. The fault is noted, and whoever has the whole file raises it.
    """

    def __init__(self, cls: type, shape_of: Callable[[Any], Shape]) -> None:
        self.cls = cls
        self._shape_of = shape_of
        self.words = "a mapping"
        if key := getattr(cls, "shorthand", None):
            self.words = f"{_said(cls, key)}, or a mapping"

    @cached_property
    def fields(self) -> dict[str, tuple["dataclasses.Field[Any]", Shape]]:
        """The fields by the key that stands for them. Found at first use: a dataclass may hold itself."""
        hints = typing.get_type_hints(self.cls, include_extras=True)
        found = {}
        for field in dataclasses.fields(self.cls):
            if field.init:
                try:
                    key, shape = key_of(field), self._shape_of(hints[field.name])
                    found[key] = (field, in_milliseconds(shape) if key.endswith("_ms") else shape)
                except TypeError as error:
                    raise TypeError(f"{self.cls.__qualname__}.{field.name}: {error}") from None
        return found

    @cached_property
    def _checks(self) -> tuple[str, ...]:
        return tuple(each for each in dir(self.cls) if _CHECK.match(each) and callable(getattr(self.cls, each)))

    @property
    def shorthand(self) -> tuple[str, Shape] | None:
        """The field that a bare value stands for."""
        key = getattr(self.cls, "shorthand", None)
        return None if key is None else (key, self.fields[key][1])

    def decode(self, node: Node, flaws: Flaws) -> Any:
        hook = getattr(self.cls, "from_node", None)
        if node.broken:
            return BAD
        if hook is None:
            return self.decode_fields(node, flaws)
        before = len(flaws)
        try:
            value = hook(node, flaws)
        except ConfigError as error:
            flaws.extend(error.flaws)
            value = None
        except ValueError as error:
            flaws.add(node, node.origin.covered(str(error)))
            return BAD
        if value is None and len(flaws) == before and not flaws.full and not node.is_faulty:
            flaws.add(node, f"{node.describe()} is not understood here")
        return BAD if value is None else value

    def decode_fields(self, node: Node, flaws: Flaws) -> Any:
        """Decode by the fields alone, without the `from_node` hook."""
        if node.broken:
            return BAD
        if node.kind != "mapping":
            if self.shorthand is None or not self.shorthand[1].fits(node):
                return self._no_mapping(node, flaws)
            return self._built({self.shorthand[0]: self.shorthand[1].decode(node, flaws)}, node, flaws)
        values: dict[str, Any] = {}
        for key, value in node.items():
            if flaws.full:
                return BAD
            if key.text in self.fields:
                values[key.text] = self.fields[key.text][1].decode(value, flaws)
            elif key.text != SCHEMA_KEY or node.where:
                flaws.add(key, self._unknown(key.text))
        return self._built(values, node, flaws)

    def decode_nothing(self, node: Node, flaws: Flaws) -> Any:
        """What the defaults alone make; faults between them are those of a node that gives none."""
        return self._built({}, node, flaws)

    def _built(self, values: dict[str, Any], node: Node, flaws: Flaws) -> Any:
        needed = (key for key, (field, _) in self.fields.items() if is_required(field))
        missing = [key for key in needed if key not in values]
        for key in missing:
            flaws.add(node, f"missing required key {name(key)}")
        sound = {self.fields[key][0].name: value for key, value in values.items() if not isinstance(value, Bad)}
        if missing or len(sound) < len(values):
            if "__slots__" not in vars(self.cls):
                return BAD
            part = self._in_part(sound, values)
            self._check(part, node, flaws)
            return Bad(part)
        try:
            built = self.cls(**sound)
        except ValueError as error:
            flaws.add(node, node.origin.covered(str(error)))
            return BAD
        self._check(built, node, flaws)
        if node.origin.looks:
            self._note(getattr(built, "look", tuple), node, flaws)
        return built

    def _in_part(self, sound: dict[str, Any], values: dict[str, Any]) -> Any:
        """An instance that lacks the fields that could not be decoded: to ask for one of them is an AttributeError."""
        part: Any = object.__new__(self.cls)
        for key, (field, _) in self.fields.items():
            value = values.get(key)
            if isinstance(value, Bad) and value.part is not None:
                object.__setattr__(part, field.name, value.part)
            if field.name in sound or (key not in values and not is_required(field)):
                object.__setattr__(part, field.name, sound.get(field.name, default_of(field)))
        return part

    def _check(self, value: Any, node: Node, flaws: Flaws) -> None:
        for check in self._checks:
            self._note(getattr(value, check), node, flaws)

    def _note(self, ask: Callable[[], Iterable[str | At]], node: Node, flaws: Flaws) -> None:
        try:
            for fault in ask():
                if isinstance(fault, At):
                    spot = spot_of(node, fault.path)
                    if not spot.absent:
                        flaws.add(spot, fault.text if fault.bare else node.origin.covered(fault.text))
                else:
                    flaws.add(node, node.origin.covered(fault))
        except Exception:
            # It met a value whose own fault is noted, here or when the file was parsed, and has nothing to add.
            if not flaws and not node.origin.flaws:
                raise

    def _no_mapping(self, node: Node, flaws: Flaws) -> Any:
        words = f"a mapping with the keys {self._known()}" if self.fields else "an empty mapping, {}"
        if self.shorthand is not None:
            words = f"{_said(self.cls, self.shorthand[0])}, or {words}"
        flaws.add(node, f"expected {words}, got {node.describe()}")
        return BAD

    def _unknown(self, key: str) -> str:
        near = difflib.get_close_matches(key[:80], self.fields, 1)
        if near:
            return f"unknown key {name(key)}, did you mean {name(near[0])}?"
        known = f"known here: {self._known()}" if self.fields else "no key is known here"
        return f"unknown key {name(key)}, {known}"

    def _known(self) -> str:
        keys = list(self.fields)
        return ", ".join(keys[:_LISTED_KEYS]) + (", …" if len(keys) > _LISTED_KEYS else "")

    def fits(self, node: Node) -> bool:
        if node.broken:
            return False
        return node.kind == "mapping" or (self.shorthand is not None and self.shorthand[1].fits(node))

    def holds(self, value: object) -> bool:
        return isinstance(value, self.cls)

    def plain(self, value: Any) -> Any:
        if hasattr(self.cls, "to_plain"):
            return masked(value.to_plain())
        return {key: shape.plain(getattr(value, field.name)) for key, (field, shape) in self.fields.items()}

    def schema(self, definitions: Definitions) -> Json:
        return define(self.cls, lambda: self._described(definitions), definitions)

    def object_schema(self, definitions: Definitions) -> Json:
        """The schema of the mapping form alone."""
        return object_schema(self.cls, self.fields, definitions)

    def _described(self, definitions: Definitions) -> Json:
        if hasattr(self.cls, "node_schema"):
            described: Json = self.cls.node_schema(lambda annotation: self._shape_of(annotation).schema(definitions))
            return described
        if hasattr(self.cls, "from_node"):
            return {}
        mapping = self.object_schema(definitions)
        return {"anyOf": [self.shorthand[1].schema(definitions), mapping]} if self.shorthand else mapping


def _said(cls: type, key: str) -> str:
    """What a bare value that stands for a field must be, in the first words of its help."""
    field = next(field for field in dataclasses.fields(cls) if key_of(field) == key)
    return help_of(field).partition(";")[0] or "text"
