"""From a field's type to its shape."""

import dataclasses
import enum
import types
import typing
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

from tailrace.proxy.config.bounds import Bound
from tailrace.proxy.config.compound import Bounded, Either, ListOf, MapOf, OrAlone
from tailrace.proxy.config.foreign import AnyPlain, Untouched
from tailrace.proxy.config.node import Node
from tailrace.proxy.config.record import Record
from tailrace.proxy.config.secret import Secret
from tailrace.proxy.config.shape import Shape
from tailrace.proxy.config.simple import Choice, FilePath, Number, SecretText, Text, TrueFalse, Whole

_SIMPLE: dict[Any, Shape] = {
    bool: TrueFalse(),
    int: Whole(),
    float: Number(),
    str: Text(),
    Secret: SecretText(),
    Path: FilePath(),
    Node: Untouched(),
    Any: AnyPlain(),
    object: AnyPlain(),
}


def shape_of(annotation: Any) -> Shape:
    """The shape of a type; TypeError for a type that no configuration can hold."""
    return _shape_of(annotation)


@lru_cache(maxsize=None, typed=True)
def _shape_of(annotation: Any) -> Shape:
    if annotation in _SIMPLE:
        return _SIMPLE[annotation]
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        return _annotated(arguments[0], arguments[1:])
    if origin in (typing.Union, types.UnionType):
        return _union(arguments)
    if origin is Literal:
        options = [(option, option) for option in arguments if option is not None]
        return Either([Choice(options)], optional=True) if None in arguments else Choice(options)
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        return ListOf(shape_of(arguments[0]), tuple)
    if origin in (list, frozenset):
        return ListOf(shape_of(arguments[0]), origin)
    if origin is dict:
        return MapOf(shape_of(arguments[0]), shape_of(arguments[1]))
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return Choice([(member.value, member) for member in annotation])
    if isinstance(annotation, type) and dataclasses.is_dataclass(annotation):
        return Record(annotation, shape_of)
    raise TypeError(f"no configuration can hold a {annotation!r}")


def record_of(cls: type) -> Record:
    """The shape of a dataclass."""
    shape = shape_of(cls)
    if not isinstance(shape, Record):
        raise TypeError(f"{cls!r} is not a dataclass")
    return shape


def _annotated(inner: Any, marks: tuple[Any, ...]) -> Shape:
    shape = next((mark for mark in marks if isinstance(mark, Shape)), None) or shape_of(inner)
    if isinstance(shape, ListOf) and any(isinstance(mark, OrAlone) for mark in marks):
        shape = shape.or_alone()
    bounds = [mark for mark in marks if isinstance(mark, Bound)]
    return Bounded(shape, bounds) if bounds else shape


def _union(arguments: tuple[Any, ...]) -> Shape:
    options = [shape_of(argument) for argument in arguments if argument is not type(None)]
    return Either(options, optional=type(None) in arguments)
