"""Which requests can be continued exactly: on another engine, the tokens so far as a prompt must mean the same.

What is not known to be harmless counts as an obstacle: a field that a newer engine understands must not make two halves
of an answer that do not belong together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tailrace.proxy.body import JsonBody

_EITHER: Final = frozenset(
    {
        "model", "stream", "stream_options", "temperature", "top_p", "top_k", "min_p", "stop", "stop_token_ids",
        "include_stop_str_in_output", "ignore_eos", "min_tokens", "max_tokens", "skip_special_tokens", "user",
        "spaces_between_special_tokens", "logit_bias", "allowed_token_ids", "priority", "cache_salt", "metadata",
        "return_token_ids", "add_special_tokens", "safety_identifier", "service_tier", "prompt_cache_key",
    }
)  # fmt: skip
HARMLESS: Final = {
    "chat": _EITHER
    | {"messages", "max_completion_tokens", "chat_template", "chat_template_kwargs", "add_generation_prompt",
       "continue_final_message", "parallel_tool_calls"},
    "completions": _EITHER | {"prompt"},
}  # fmt: skip
"""Fields that mean the same for a continuation, by the name of a route."""
WITHOUT_EFFECT: Final[dict[str, tuple[object, ...]]] = {
    "n": (1,),
    "best_of": (1,),
    "echo": (False,),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "repetition_penalty": (1,),
    "store": (False,),
    "suffix": ("",),
    "use_beam_search": (False,),
    "response_format": ({"type": "text"},),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "functions": ([],),
    "bad_words": ([],),
}
"""Fields that change nothing while they have one of these values."""


def obstacle(body: JsonBody, route: str) -> str:
    """Why answers to this request cannot be continued exactly: the name of a field; empty where nothing is known."""
    harmless = HARMLESS.get(route)
    if harmless is None:
        return "route"
    names = body.names()
    if harmless.issuperset(names):
        return ""
    for name in names:
        if name not in harmless:
            value = body.get(name)
            if value is None or _is_without_effect(name, value):
                continue
            if name != "seed" or not is_greedy(body):
                return name
    return ""


def _is_without_effect(name: str, value: object) -> bool:
    # A number is no truth value here: `logprobs: 0` asks for some, `logprobs: false` does not.
    is_bool = isinstance(value, bool)
    return any(value == same and is_bool is isinstance(same, bool) for same in WITHOUT_EFFECT.get(name, ()))


def is_greedy(body: JsonBody) -> bool:
    """Whether nothing is drawn by chance: the same tokens come again, and a seed means nothing."""
    temperature = body.get("temperature")
    return isinstance(temperature, int | float) and temperature == 0


def obstacle_in_prompt(body: JsonBody, route: str) -> str:
    """The same of what the prompt is made of, which may take a while to read."""
    if route == "completions":
        prompt = body.get("prompt")
        whole = isinstance(prompt, str) or (isinstance(prompt, list) and prompt and isinstance(prompt[0], int))
        return "" if whole else "prompt"
    messages: Any = body.get("messages")
    if not isinstance(messages, list):
        return "messages"
    # Only text is sure to give the same tokens twice; what is not text says so by its type.
    for message in messages:
        content = message.get("content") if isinstance(message, dict) else None
        for part in content if isinstance(content, list) else ():
            if not isinstance(part, dict) or part.get("type") != "text":
                return "messages"
    return ""
