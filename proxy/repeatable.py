"""Whether a request may reach two workers: whatever has effects beyond its answer must not, unless nobody saw it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from tailrace.proxy.fault import Reject

if TYPE_CHECKING:
    from tailrace.proxy.attempt import Attempt
    from tailrace.proxy.call import Call

PURE: Final = frozenset(
    {
        "chat", "completions", "responses", "messages", "count_tokens", "embeddings", "rerank", "score", "classify",
        "pooling", "tokenize", "detokenize",
    }
)  # fmt: skip
"""Routes whose answers are all that their requests bring about, but for what `_has_effects` finds in a body.

Not among them: uploads, and paths that are passed through to somebody whose habits are not known here.
"""
MARK: Final = b"x-tailrace-idempotent"
"""`false` in it is how a client says that its request must not be repeated."""
_KEEPING: Final = ("store", "background")
_CALLERS: Final = frozenset({None, "function", "custom"})
"""Tools that the client runs itself; others are run where the model is."""


def repeatable(call: Call) -> bool:
    """Whether asking twice does no harm."""
    if call.head.method in ("GET", "HEAD"):
        return True
    if call.route.name not in PURE or call.route.pinned or call.body is None:
        return False
    marked = call.head.get(MARK)
    return (marked is None or marked.strip().lower() != b"false") and not _has_effects(call)


def _has_effects(call: Call) -> bool:
    body = call.body
    assert body is not None
    if any(body.flag(name) for name in _KEEPING):
        return True
    if not body.has("tools"):
        return False
    try:
        tools: Any = body.get("tools")
    except Reject:
        return True
    if not isinstance(tools, list):
        return False
    return any(isinstance(tool, dict) and tool.get("type") not in _CALLERS for tool in tools)


def seen(tries: Sequence[Attempt]) -> bool:
    """Whether a worker may have seen the request."""
    return any(attempt.sent_ns and (attempt.fault is None or attempt.fault.sent) for attempt in tries)
