"""The chat template: from messages to prompt ids."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tailrace.worker.sim.errors import bad_request, invalid
from tailrace.worker.sim.tokenizer import IM_END, IM_START, encode
from tailrace.worker.sim.validation import Body, boolean

Message = tuple[str, str]
"""A role and a text."""

# Where only one of the two was said the template refuses, not the schema.
_INCOMPATIBLE = (
    "continue_final_message and add_generation_prompt are not compatible. Use continue_final_message when you want "
    "the model to continue the final message, and add_generation_prompt when you want to add a header that will prompt "
    "it to start a new assistant message instead."
)


def chat_prompt(messages: list[Message], *, generate: bool = True, resume: bool = False) -> list[int]:
    """The ids of a conversation.

    `generate` opens the assistant's turn; `resume` leaves the last message open, so that the answer goes on from it.
    """
    if not messages:
        raise bad_request("Cannot apply chat template to an empty conversation. Provide at least one message.")
    ids: list[int] = []
    last = len(messages) - 1
    for at, (role, text) in enumerate(messages):
        ids += [IM_START, *encode(f"{role}\n"), *encode(text)]
        if not (resume and at == last):
            ids += [IM_END, *encode("\n")]
    if generate:
        ids += [IM_START, *encode("assistant\n")]
    return ids


@dataclass(frozen=True, slots=True)
class Opening:
    """Where the answer to a conversation begins: in a turn of its own, or in the last message."""

    generate: bool
    resume: bool

    def prompt(self, messages: list[Any], model: str) -> list[int]:
        """The ids of a conversation as it was given."""
        if self.generate and self.resume:
            raise bad_request(_INCOMPATIBLE)
        return chat_prompt(chat_messages(messages, model), generate=self.generate, resume=self.resume)


def read_opening(body: Body) -> Opening:
    """Read `add_generation_prompt`, true where it is not given, and `continue_final_message`; not both."""
    resume = boolean(body, "continue_final_message")
    generate = boolean(body, "add_generation_prompt")
    if resume and generate:
        raise bad_request("Cannot set both `continue_final_message` and `add_generation_prompt` to True.")
    return Opening(generate or "add_generation_prompt" not in body, resume)


def chat_messages(given: list[Any], model: str) -> list[Message]:
    """OpenAI's messages as role and text; unknown roles are taken as they are, pictures refused."""
    messages: list[Message] = []
    for at, message in enumerate(given):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise invalid("missing", f"body.messages.{at}.role", "Field required", message)
        text = _text(message.get("content"), model)
        for call in message.get("tool_calls") or ():
            function = call.get("function") if isinstance(call, dict) else None
            if isinstance(function, dict):
                text += tool_call_text(str(function.get("name")), str(function.get("arguments")))
        messages.append((message["role"], text))
    return messages


def tool_call_text(name: str, arguments: str) -> str:
    """A call of a tool as the model writes it."""
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


def _text(content: object, model: str) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise invalid("string_type", "body.messages", "Input should be a valid string", content)
    parts: list[str] = []
    for part in content:
        if isinstance(part, str):
            parts.append(part)
        elif isinstance(part, dict) and isinstance(part.get("text"), str):
            parts.append(part["text"])
        elif isinstance(part, dict) and any(kind in str(part.get("type")) for kind in ("image", "audio", "video")):
            raise bad_request(f"{model} is not a multimodal model")
    return "".join(parts)
