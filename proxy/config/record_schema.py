"""The JSON schema of a dataclass."""

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any

from tailrace.proxy.config.secret import Hidden, Secret
from tailrace.proxy.config.setting import default_of, help_of, is_required, why_of
from tailrace.proxy.config.shape import Definitions, Json, Shape

Fields = Mapping[str, tuple["dataclasses.Field[Any]", Shape]]


def define(cls: type, body: Callable[[], Json], definitions: Definitions) -> Json:
    """A reference to the schema of a class, which is built at its first mention: a class may hold itself."""
    if cls not in definitions:
        taken = {named for named, _ in definitions.values()}
        plain = re.sub(r"[^A-Za-z0-9_.-]+", "_", f"{cls.__module__.rpartition('.')[2]}.{cls.__qualname__}")
        named = next(n for n in (plain, *(f"{plain}.{i}" for i in range(2, len(taken) + 3))) if n not in taken)
        schema: Json = {}
        definitions[cls] = (named, schema)
        schema.update(body())
    return {"$ref": f"#/$defs/{definitions[cls][0]}"}


def object_schema(cls: type, fields: Fields, definitions: Definitions) -> Json:
    """The mapping form of a dataclass."""
    schema: Json = {"type": "object", "additionalProperties": False}
    if cls.__doc__ and not cls.__doc__.startswith(f"{cls.__name__}("):
        schema["description"] = cls.__doc__.strip().partition("\n")[0]
    schema["properties"] = {key: _property(field, shape, definitions) for key, (field, shape) in fields.items()}
    needed = [key for key, (field, _) in fields.items() if is_required(field)]
    return schema | ({"required": needed} if needed else {})


def _property(field: "dataclasses.Field[Any]", shape: Shape, definitions: Definitions) -> Json:
    schema = dict(shape.schema(definitions))
    said = [part for part in (help_of(field), why_of(field) and f"Default: {why_of(field)}") if part]
    if said:
        schema["description"] = " ".join(said)
    default = default_of(field)
    # The defaults of a dataclass stand at its own fields.
    silent = default is dataclasses.MISSING or dataclasses.is_dataclass(default)
    if not silent and not isinstance(default, Secret | Hidden):
        schema["default"] = shape.plain(default)
    return schema
