"""Whether an answer is all that it should be, and can be given as a stream too: only such a one is kept."""

from __future__ import annotations

from typing import Any, Final

_REASONS: Final = {
    "chat": ("stop", "tool_calls", "function_call"),
    "completions": ("stop",),
    "messages": ("end_turn", "tool_use", "stop_sequence"),
}
"""The ends of answers that say all they had to: not those of a length, nor of an engine that gave up."""


def is_whole(route: str, answer: dict[str, Any], choices: int = 1) -> bool:
    """Whether a unary answer is whole; `choices` were asked for at least."""
    if answer.get("error") or answer.get("object") == "error":
        return False
    if route == "responses":
        return answer.get("status") == "completed" and not answer.get("incomplete_details")
    reasons = _REASONS.get(route)
    if reasons is None:
        return True
    if route == "messages":
        return answer.get("stop_reason") in reasons
    given = answer.get("choices")
    if not isinstance(given, list) or len(given) < max(1, choices):
        return False
    return all(isinstance(choice, dict) and choice.get("finish_reason") in reasons for choice in given)


_SPOKEN: Final = frozenset({"role", "content", "refusal", "reasoning", "reasoning_content", "tool_calls"})
_BLOCKS: Final = ("text", "thinking", "tool_use")


def has_stream_form(route: str, answer: dict[str, Any]) -> bool:
    """Whether nothing is in a whole answer of chat, completions or messages that its stream would lack."""
    if route == "messages":
        content = answer.get("content")
        return isinstance(content, list) and all(_streams_as_block(block) for block in content)
    for choice in answer["choices"]:
        if choice.get("logprobs") or choice.get("token_ids") or choice.get("prompt_logprobs"):
            return False
        if not (isinstance(choice.get("text"), str) if route == "completions" else _streams_as_message(choice)):
            return False
    return True


def _streams_as_block(block: Any) -> bool:
    return (
        isinstance(block, dict)
        and block.get("type") in _BLOCKS
        and not block.get("citations")
        and (block["type"] == "tool_use" or isinstance(block.get(block["type"]), str))
    )


def _streams_as_message(choice: dict[str, Any]) -> bool:
    message = choice.get("message")
    if not isinstance(message, dict) or not isinstance(message.get("content"), str | None):
        return False
    if any(value for name, value in message.items() if name not in _SPOKEN):
        return False
    tools = message.get("tool_calls") or []
    return isinstance(tools, list) and all(_streams_as_tool(tool) for tool in tools)


def _streams_as_tool(tool: Any) -> bool:
    function = tool.get("function") if isinstance(tool, dict) else None
    if not isinstance(function, dict):
        return False
    told = tool.get("id"), function.get("name"), function.get("arguments")
    return all(isinstance(value, str) for value in told)
