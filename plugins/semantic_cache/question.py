"""What of a request is compared by its meaning, the last thing its user said, and what by the letter: all else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tailrace.proxy.stored.asking import obstacle, refers_elsewhere
from tailrace.proxy.stored.canonical import canonical, fields_of, key_of

if TYPE_CHECKING:
    from tailrace.proxy.call import Call

ROUTES: Final = frozenset({"chat", "messages"})
_TOOLS: Final = ("tools", "functions")


@dataclass(frozen=True, slots=True)
class Question:
    """The `text`, and a digest of all else that has a part in the answer, whoever asks and in which domain included.

    `said` is all that people wrote in the request.
    """

    text: str
    context: bytes
    said: str


def question_of(call: Call, scope: str, longest: int) -> Question | str:
    """What a call asks, or why its answer cannot be another one's: a short word for the metrics."""
    fields = fields_of(call)
    if fields is None:
        return "form"
    why = obstacle(call, fields)
    if why is not None:
        return why
    if fields.get("store") is not None:
        # Who forbids to store it will not want to find it with somebody else.
        return "effects" if fields["store"] else "private"
    if any(fields.get(name) for name in _TOOLS):
        return "tools"
    if fields.get("n") not in (None, 1):
        return "form"
    messages = fields.get("messages")
    if not isinstance(messages, list) or not messages:
        return "form"
    last = messages[-1]
    if not isinstance(last, dict) or last.get("role") != "user":
        return "form"
    text = _text_of(last.get("content"))
    if text is None or not text.strip():
        return "form"
    if len(text) > longest:
        return "long"
    said = "\n".join(_said(messages, fields.get("system")))
    messages[-1] = {**last, "content": None}
    form = canonical(call, scope, fields)
    if refers_elsewhere(form):
        return "effects"
    return Question(text, key_of(form), said)


def _text_of(content: Any) -> str | None:
    """The text of a message, None where it is not all text."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return None
    parts = [part.get("text") for part in content if isinstance(part, dict) and part.get("type") == "text"]
    texts = [part for part in parts if isinstance(part, str)]
    return "\n".join(texts) if texts and len(texts) == len(content) else None


def _said(messages: list[Any], system: Any) -> list[str]:
    """Every text of a conversation."""
    contents = [message.get("content") for message in messages if isinstance(message, dict)]
    return [text for content in (system, *contents) for text in _texts_in(content)]


def _texts_in(content: Any) -> list[str]:
    if isinstance(content, str):
        return [content]
    if not isinstance(content, list):
        return []
    return [part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str)]
