"""Which requests may have their answers kept: they bring about nothing else, and the same comes of them each time."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from tailrace.proxy.repeatable import MARK, repeatable

if TYPE_CHECKING:
    from tailrace.proxy.call import Call

NATURAL: Final = frozenset(
    {"embeddings", "rerank", "score", "classify", "pooling", "tokenize", "detokenize", "count_tokens"}
)
"""Routes whose answers are the same each time."""
DRAWN: Final = frozenset({"chat", "completions", "messages", "responses"})
"""Routes whose answers are drawn, unless the temperature is 0."""
_PLAIN: Final = (NATURAL | DRAWN) - {"responses"}
_BEYOND: Final = (
    "previous_response_id", "conversation", "prompt_template", "background", "container", "mcp_servers",
    "kv_transfer_params", "ec_transfer_params",
)  # fmt: skip
"""Fields by which a request refers to something that is not in it, or leaves something behind."""
_DETAILS: Final = ("logprobs", "top_logprobs", "prompt_logprobs", "return_token_ids", "return_tokens_as_token_ids")
"""What is asked for beside an answer's text, and has no place in the form in which that is kept."""
_AUDIO: Final = "audio"
# In the canonical form; text that somebody wrote has its quotes escaped.
_ELSEWHERE: Final = re.compile(rb'"(?:[a-z_]*url|file_id|[a-z_]*uuid)":"(?!data:)')
_NEEDLES: Final = (b'url":"', b'id":"')
_SUSPECT: Final = frozenset((*_BEYOND, *_DETAILS, _AUDIO, "store", "tools", "stream_options"))
"""A request with none of these fields has nothing that `obstacle` looks for, but for its head."""


def drawn(call: Call) -> bool:
    """Whether chance has a part in the answer."""
    if call.route.name in NATURAL:
        return False
    assert call.body is not None
    temperature = call.body.get("temperature")
    return isinstance(temperature, bool) or not isinstance(temperature, int | float) or temperature != 0


def obstacle(call: Call, fields: dict[str, Any]) -> str | None:
    """Why the answer to a request must not be kept at all, whatever anybody wishes; None where nothing is known."""
    route = call.route.name
    if MARK not in call.head.folded and route in _PLAIN and _SUSPECT.isdisjoint(fields):
        return None
    if not repeatable(call):
        return "effects"
    for name in _BEYOND:
        if fields.get(name):
            return "effects"
    if route == "responses":
        # Unless it is told otherwise, an engine keeps these.
        return None if fields.get("store") is False else "effects"
    if route not in DRAWN:
        return None
    for name in _DETAILS:
        value = fields.get(name)
        if value is not None and value is not False:
            return "form"
    options = fields.get("stream_options")
    running = isinstance(options, dict) and options.get("continuous_usage_stats")
    return "form" if running or fields.get(_AUDIO) else None


def refers_elsewhere(form: bytes) -> bool:
    """Whether a request, in its canonical form, names media that lie elsewhere, where they may change."""
    for needle in _NEEDLES:
        if form.find(needle) >= 0:
            return _ELSEWHERE.search(form) is not None
    return False
