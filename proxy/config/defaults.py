"""Every setting with its default and the reason for it, for a reader's table."""

import dataclasses
import json
from collections.abc import Iterator
from typing import Any

from tailrace.proxy.config.compound import Bounded, Either, ListOf, MapOf
from tailrace.proxy.config.record import Record
from tailrace.proxy.config.setting import default_of, help_of, why_of
from tailrace.proxy.config.shape import Shape
from tailrace.proxy.config.shapes import record_of


def defaults(cls: type) -> Iterator[tuple[str, str, str]]:
    """Dotted name, default as the file would have it ("required" if none), and why it is so, else what it is for.

    A setting inside a list is named `listen[].port`, one inside a mapping with free keys `models.<name>.weight`.
    """
    return _of_record(record_of(cls), "", None, ())


def _of_record(record: Record, prefix: str, instance: Any, above: tuple[type, ...]) -> Iterator[tuple[str, str, str]]:
    above = (*above, record.cls)
    for key, (field, shape) in record.fields.items():
        default = default_of(field) if instance is None else getattr(instance, field.name)
        dotted = prefix + key
        inner = nested(shape)
        if inner is None or inner[1] or default is None or default is dataclasses.MISSING:
            yield dotted, _shown(shape, default), why_of(field) or help_of(field)
        if inner is not None and inner[0].cls not in above:
            inside = default if inner[0].holds(default) else None
            yield from _of_record(inner[0], f"{dotted}{inner[1]}.", inside, above)


def nested(shape: Shape) -> tuple[Record, str] | None:
    """The dataclass that a field holds, and how to name one of several."""
    if isinstance(shape, Record):
        # What a class reads in its own way has no list of fields to show.
        return None if hasattr(shape.cls, "from_node") else (shape, "")
    if isinstance(shape, Bounded):
        return nested(shape.inner)
    if isinstance(shape, Either):
        return next(filter(None, map(nested, shape.options)), None)
    if isinstance(shape, ListOf | MapOf):
        inner = nested(shape.element if isinstance(shape, ListOf) else shape.value)
        suffix = "[]" if isinstance(shape, ListOf) else ".<name>"
        return inner and (inner[0], suffix + inner[1])
    return None


def _shown(shape: Shape, default: Any) -> str:
    if default is dataclasses.MISSING:
        return "required"
    plain = shape.plain(default)
    return plain if isinstance(plain, str) and plain else json.dumps(plain, ensure_ascii=False)
