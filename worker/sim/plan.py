"""Answers that are settled beforehand: tool calls and JSON after a schema."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson
from tailrace.worker.sim.errors import bad_request, invalid
from tailrace.worker.sim.sequence import Plan
from tailrace.worker.sim.text import checksum
from tailrace.worker.sim.tokenizer import encode
from tailrace.worker.sim.validation import Body, array, mapping
from tailrace.worker.sim.words import WORDS

_DEPTH = 8
"""Where a schema that contains itself is cut off."""


def plan_for(body: Body, prompt: Sequence[int]) -> Plan | None:
    """What a chat request forces the model to say; None leaves it free."""
    tools = array(body, "tools")
    choice = body.get("tool_choice")
    if choice is not None and choice not in ("none", "auto"):
        if not tools:
            message = "When using `tool_choice`, `tools` must be set. (parameter=tool_choice)"
            raise bad_request(message, "tool_choice")
        function = _function(tools, choice)
        return tool_call(function, prompt, required=choice == "required")
    wanted = mapping(body, "response_format") or {}
    if wanted.get("type") == "json_object":
        return Plan(ids=encode('{"answer": "' + _word(checksum(prompt, 0)) + '"}'))
    described = wanted.get("json_schema")
    if wanted.get("type") == "json_schema" and isinstance(described, dict):
        return Plan(ids=encode(_json(described.get("schema"), prompt)))
    return None


def tool_call(function: Body, prompt: Sequence[int], *, required: bool) -> Plan:
    """A call of a tool with arguments that fit its schema; `required` left the model the choice of the tool."""
    name = str(function["name"])
    before = encode(f'<tool_call>\n{{"name": {_quoted(name)}, "arguments": ')
    arguments = encode(_json(function.get("parameters"), prompt))
    spelt = range(len(before), len(before) + len(arguments))
    ids = [*before, *arguments, *encode("}\n</tool_call>")]
    return Plan(ids=ids, tool=name, arguments=spelt, reason="tool_calls" if required else "stop")


def _function(tools: list[Any], choice: object) -> Body:
    given = (tool.get("function") for tool in tools if isinstance(tool, dict))
    functions: list[Body] = [one for one in given if isinstance(one, dict) and isinstance(one.get("name"), str)]
    if choice == "required" and functions:
        return functions[0]
    named = choice.get("function") if isinstance(choice, dict) else None
    if not isinstance(named, dict):
        raise invalid("literal_error", "body.tool_choice", "Input should be 'none', 'auto' or 'required'", choice)
    for function in functions:
        if function["name"] == named.get("name"):
            return function
    message = "The tool specified in `tool_choice` does not match any of the specified `tools`"
    raise bad_request(f"{message} (parameter=tool_choice)", "tool_choice")


def _quoted(text: str) -> str:
    return orjson.dumps(text).decode()


def _json(schema: object, prompt: Sequence[int]) -> str:
    """A value that fits a schema, spaced as models write JSON."""
    value = _value(schema, checksum(prompt, 0), 0)
    return _spaced(value)


def _spaced(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_quoted(str(key))}: {_spaced(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_spaced, value)) + "]"
    return orjson.dumps(value).decode()


def _word(drawn: int) -> str:
    return WORDS[drawn % len(WORDS)]


def _value(schema: object, drawn: int, depth: int) -> Any:
    """Any value that the schema admits; what it draws hangs on the prompt."""
    if not isinstance(schema, dict) or depth > _DEPTH:
        return {} if depth == 0 else None
    if "const" in schema:
        return schema["const"]
    for choices in ("enum", "anyOf", "oneOf"):
        given = schema.get(choices)
        if isinstance(given, list) and given:
            chosen = given[drawn % len(given)]
            return chosen if choices == "enum" else _value(chosen, drawn, depth + 1)
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = kind[0] if kind else None
    if kind == "object" or "properties" in schema:
        properties = schema.get("properties")
        items = properties.items() if isinstance(properties, dict) else ()
        return {name: _value(part, drawn + at + 1, depth + 1) for at, (name, part) in enumerate(items)}
    if kind == "array":
        return [_value(schema.get("items"), drawn + 1, depth + 1)]
    if kind in ("integer", "number"):
        low = schema.get("minimum", 1)
        return low if isinstance(low, int | float) else 1
    simple: dict[object, Any] = {"boolean": drawn % 2 == 0, "null": None}
    return simple.get(kind, _word(drawn))
