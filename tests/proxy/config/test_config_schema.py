"""The schema takes what decode takes, and refuses what an editor can see is wrong."""

import json
from typing import Any

import jsonschema
import pytest
from config_samples import Branch, Listener, Sample
from tailrace.proxy.config import parse, render, schema
from test_config_flaws import CASES
from test_config_interpolation import TAKES
from test_config_values import VALUES

VALIDATOR = jsonschema.Draft202012Validator(schema(Sample))

# Faults that lie outside one value's own shape: an editor finds them in another way, or not at all.
UNSEEN = {
    "int from float",  # JSON knows one kind of number
    "between fields",
    "key twice",
    "key twice, deep",
    "key twice where nobody decodes",
    "tag",
    "python tag",
    "own type",
    "bound in the field's unit",
    "size of half a byte",
    "int too large",
    "a hook raises",
    "a number out of bounds is no text",
}


def valid(text: str) -> bool:
    return bool(VALIDATOR.is_valid(parse(text, "t.yaml", environ={}).root.plain()))


def test_it_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(schema(Sample))


@pytest.mark.parametrize("text", [text for text, _, _ in VALUES.values()], ids=VALUES)
def test_it_takes_what_decode_takes(text: str) -> None:
    assert valid(text)


@pytest.mark.parametrize("text", [text for text, _, _ in TAKES.values()], ids=TAKES)
def test_it_takes_references_wherever_they_stand(text: str) -> None:
    # An editor sees the reference itself: single quotes and a doubled dollar keep it from being replaced.
    assert VALIDATOR.is_valid(parse(text.replace("$", "$$"), "t.yaml").root.plain()) or "1${N}" in text


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, (text, _) in CASES.items()], ids=CASES)
def test_it_refuses_what_decode_refuses(name: str, text: str) -> None:
    assert valid(text) == (name in UNSEEN)


def test_it_takes_the_rendered_defaults() -> None:
    assert valid(render(Sample()))


def test_an_editor_is_told_what_a_field_is_for() -> None:
    whole = schema(Sample)
    assert whole["properties"]["limits"]["description"] == "How long to wait."
    backlog = _definition(whole, Listener)["anyOf"][1]["properties"]["backlog"]
    assert backlog["description"] == "Pending connections. Default: A burst fits."
    assert (backlog["default"], backlog["minimum"]) == (1024, 1)
    assert whole["properties"]["patience"]["default"] == "250ms"
    assert whole["properties"]["body"]["default"] == "1MiB"


def test_a_class_that_holds_itself_is_defined_once() -> None:
    definition = _definition(schema(Sample), Branch)
    assert definition["properties"]["branches"]["items"]["$ref"].endswith(".Branch")
    assert jsonschema.Draft202012Validator(schema(Branch)).is_valid({"branches": [{"branches": [{"label": "x"}]}]})


def test_it_is_plain_json() -> None:
    assert json.loads(json.dumps(schema(Sample))) == schema(Sample)


def _definition(whole: dict[str, Any], cls: type) -> Any:
    return next(value for key, value in whole["$defs"].items() if key.endswith(f".{cls.__name__}"))
