"""From a body to fields of the right types, or to the 400 that vLLM's schema gives."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import orjson
from tailrace.worker.sim.errors import Refusal, invalid

Body = dict[str, Any]

_INT = ("int_parsing", "Input should be a valid integer, unable to parse string as an integer")
_FLOAT = ("float_parsing", "Input should be a valid number, unable to parse string as a number")
_BOOL = ("bool_parsing", "Input should be a valid boolean, unable to interpret input")


def json_body(raw: bytes, content_type: bytes) -> Body:
    """The object that a request carries."""
    if content_type.split(b";", 1)[0].strip().lower() != b"application/json":
        message = "1 validation error:\n  Unsupported Media Type: Only 'application/json' is allowed"
        raise Refusal(400, message, "Bad Request")
    if not raw:
        raise invalid("missing", "body", "Field required", None)
    value = _parsed(raw)
    if not isinstance(value, dict):
        msg = "Input should be a valid dictionary or object to extract fields from"
        raise invalid("model_attributes_type", "body", msg, value)
    return value


def _parsed(raw: bytes) -> object:
    with contextlib.suppress(orjson.JSONDecodeError):
        return orjson.loads(raw)
    # The standard library words and places the error as vLLM does, and takes what only orjson refuses (NaN, big ints).
    try:
        return json.loads(raw)
    except json.JSONDecodeError as error:
        place = f"body.{error.pos}"
        raise invalid("json_invalid", place, "JSON decode error", {}, {"error": error.msg}) from None
    except (UnicodeDecodeError, RecursionError):
        raise Refusal(400, "There was an error parsing the body", "Bad Request") from None


def required(body: Body, name: str) -> Any:
    """A field that must be there and not null."""
    if name not in body:
        raise invalid("missing", f"body.{name}", "Field required", body)
    return body[name]


def integer(body: Body, name: str) -> int | None:
    """A whole number, perhaps written as a string."""
    value = body.get(name)
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and value.strip().lstrip("+-").isdecimal():
        return int(value)
    if isinstance(value, str):
        raise invalid(_INT[0], f"body.{name}", _INT[1], value)
    if isinstance(value, float):
        msg = "Input should be a valid integer, got a number with a fractional part"
        raise invalid("int_from_float", f"body.{name}", msg, value)
    raise invalid("int_type", f"body.{name}", "Input should be a valid integer", value)


def number(body: Body, name: str) -> float | None:
    """A number, perhaps written as a string."""
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            raise invalid(_FLOAT[0], f"body.{name}", _FLOAT[1], value) from None
    raise invalid("float_type", f"body.{name}", "Input should be a valid number", value)


def boolean(body: Body, name: str) -> bool:
    """A flag, false where it is missing."""
    value = body.get(name)
    if value is None or isinstance(value, bool):
        return bool(value)
    if isinstance(value, int) and value in (0, 1):
        return bool(value)
    if isinstance(value, str) and value.lower() in ("true", "false", "1", "0", "on", "off", "yes", "no"):
        return value.lower() in ("true", "1", "on", "yes")
    raise invalid(_BOOL[0], f"body.{name}", _BOOL[1], value)


def mapping(body: Body, name: str) -> Body | None:
    """An object."""
    value = body.get(name)
    if value is None or isinstance(value, dict):
        return value
    raise invalid("dict_type", f"body.{name}", "Input should be a valid dictionary", value)


def array(body: Body, name: str) -> list[Any] | None:
    """A list."""
    value = body.get(name)
    if value is None or isinstance(value, list):
        return value
    raise invalid("list_type", f"body.{name}", "Input should be a valid list", value)


def string(body: Body, name: str) -> str | None:
    """A text."""
    value = body.get(name)
    if value is None or isinstance(value, str):
        return value
    raise invalid("string_type", f"body.{name}", "Input should be a valid string", value)
