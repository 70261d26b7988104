"""What another worker is asked so that it goes on with an answer: the prompt's tokens, then what comes behind them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import orjson
from tailrace.proxy.asked import whole_number

if TYPE_CHECKING:
    from tailrace.proxy.body import JsonBody
    from tailrace.proxy.call import Call
    from tailrace.proxy.fleet import Worker

TOKENIZE: Final = b"/tokenize"
DETOKENIZE: Final = b"/detokenize"
CONTINUE: Final = b"/v1/completions"
OF_A_CHAT: Final = (
    "messages", "add_generation_prompt", "continue_final_message", "add_special_tokens", "chat_template",
    "chat_template_kwargs",
)  # fmt: skip
OF_A_TEXT: Final = ("prompt", "add_special_tokens")
CARRIED: Final = (
    "temperature", "top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty",
    "stop_token_ids", "ignore_eos", "skip_special_tokens", "spaces_between_special_tokens", "logit_bias",
    "allowed_token_ids", "priority", "cache_salt", "include_stop_str_in_output", "user",
)  # fmt: skip
"""What a continuation is asked as its answer was: how tokens are chosen, and how they are turned into text.

Penalties without effect are among them: a model may have others of its own, which they switch off.
"""


def head(call: Call, worker: Worker, number: int, path: bytes, length: int) -> bytes:
    """The head of a request of the rescue's own to a worker, as its attempt with this number."""
    return b"".join(
        (
            worker.post,
            path,
            b" HTTP/1.1\r\n",
            worker.headers,
            b"" if call.trace is None else call.trace.line(number),
            b"x-tailrace-attempt: %d\r\n" % (number + call.tried_before),
            call.peer.forwarded,
            b"x-request-id: %b-%d\r\n" % (call.id.encode(), number),
            b"content-type: application/json\r\naccept-encoding: identity\r\ncontent-length: %d\r\n\r\n" % length,
        )
    )


def prompt_ids(body: JsonBody) -> list[int] | None:
    """The prompt's tokens where the request itself consists of them."""
    prompt = body.get("prompt")
    if isinstance(prompt, list) and all(isinstance(number, int) for number in prompt):
        return prompt
    return None


def tokenize(body: JsonBody, served: str, route: str) -> bytes:
    """Ask what tokens a prompt has."""
    names = OF_A_CHAT if route == "chat" else OF_A_TEXT
    return _fields(body, names, {"model": orjson.dumps(served)})


def detokenize(served: str, ids: Sequence[int]) -> bytes:
    """Ask what text tokens have."""
    return orjson.dumps({"model": served, "tokens": list(ids)})


def room(body: JsonBody, route: str, prompt: int, longest: int) -> int:
    """How many tokens the whole answer may have; raises Reject where the request is strange."""
    fields = ("max_completion_tokens", "max_tokens") if route == "chat" else ("max_tokens",)
    rest = longest - prompt if longest else 1 << 30
    for name in fields:
        asked = whole_number(body, name)
        if asked is not None:
            return min(asked, rest)
    return rest if route == "chat" else min(16, rest)


def go_on(
    body: JsonBody, served: str, prompt: Sequence[int], ids: Sequence[int], most: int, usage: tuple[bool, bool]
) -> bytes:
    """Ask for what comes behind the tokens so far, at most `most` in all; `usage` at the end and beside each event.

    Stop strings are not asked for: one may begin in the text that was shown, and is looked for here.
    """
    done = len(ids)
    least = whole_number(body, "min_tokens") or 0
    own: dict[str, bytes] = {
        "model": orjson.dumps(served),
        "prompt": orjson.dumps([*prompt, *ids]),
        "max_tokens": b"%d" % (most - done),
        "stream": b"true",
        "return_token_ids": b"true",
    }
    if usage[0]:
        options = {"include_usage": True, "continuous_usage_stats": True} if usage[1] else {"include_usage": True}
        own["stream_options"] = orjson.dumps(options)
    if least > done:
        own["min_tokens"] = b"%d" % (least - done)
    return _fields(body, CARRIED, own)


def _fields(body: JsonBody, names: Sequence[str], own: dict[str, bytes]) -> bytes:
    for name in names:
        written = body.written(name)
        if written is not None:
            own[name] = bytes(written)
    return b"{" + b",".join([b'"%b":%b' % (name.encode(), value) for name, value in own.items()]) + b"}"


def stops_of(body: JsonBody) -> list[str]:
    """The stop strings of a request."""
    stop: Any = body.get("stop")
    if isinstance(stop, str):
        return [stop] if stop else []
    return [text for text in stop if isinstance(text, str) and text] if isinstance(stop, list) else []
