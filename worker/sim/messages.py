"""`/v1/messages` and its token count: Anthropic's dialect, made of a chat as vLLM makes it."""

from __future__ import annotations

from typing import Any

import orjson
from tailrace.worker.sim.answer import Asked, Stream
from tailrace.worker.sim.chat import read_chat
from tailrace.worker.sim.chat_unary import ChatUnary
from tailrace.worker.sim.engine import Engine
from tailrace.worker.sim.errors import draining, invalid
from tailrace.worker.sim.exchange import Exchange, chunk
from tailrace.worker.sim.sequence import Sequence
from tailrace.worker.sim.template import chat_messages, chat_prompt, tool_call_text
from tailrace.worker.sim.tool_blocks import ToolBlocks
from tailrace.worker.sim.usage import completion_tokens, prompt_tokens, untold
from tailrace.worker.sim.validation import Body, array, integer, json_body, required

_STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}

_UNREAD = "2 validation errors for ChatCompletionStreamResponse" + "".join(
    f"\n{name}\n  Field required [type=missing, input_value={{'error': {{'message': '%s...am': None, 'code': 500}}}}, "
    "input_type=dict]\n    For further information visit https://errors.pydantic.dev/2.14/v/missing"
    for name in ("model", "choices")
)


def messages(engine: Engine, exchange: Exchange) -> None:
    """Answer a messages request."""
    body = json_body(exchange.request.body, exchange.request.headers.get(b"content-type", b""))
    required(body, "messages")
    required(body, "max_tokens")
    asked = read_chat(engine, _as_chat(body))
    if engine.state == "draining":
        raise draining(bare=False)
    shape = MessagesStream if asked.options.stream else MessagesUnary
    shape(engine, exchange, asked, "chatcmpl-").start()


def count_tokens(engine: Engine, exchange: Exchange) -> None:
    """Say how many tokens a conversation takes."""
    body = json_body(exchange.request.body, exchange.request.headers.get(b"content-type", b""))
    required(body, "messages")
    model = engine.resolve(body.get("model"))
    if engine.state == "draining":
        raise draining(bare=False)
    count = len(chat_prompt(chat_messages(_as_chat(body)["messages"], model)))
    counted = {"input_tokens": count, "context_management": {"original_input_tokens": count}}
    exchange.reply(200, orjson.dumps(counted))


def _as_chat(body: Body) -> Body:
    """The chat request that asks for the same."""
    turns: list[Body] = []
    system = body.get("system")
    if system:
        turns.append({"role": "system", "content": system})
    given = body.get("messages")
    if not isinstance(given, list):
        raise invalid("list_type", "body.messages", "Input should be a valid list", given)
    turns += [turn | {"content": _blocks(turn.get("content"))} if isinstance(turn, dict) else turn for turn in given]
    chat = {
        "model": body.get("model"),
        "messages": turns,
        "max_tokens": integer(body, "max_tokens"),
        "stop": body.get("stop_sequences"),
    }
    chat |= {name: body[name] for name in ("temperature", "top_p", "stream", "priority", "ignore_eos") if name in body}
    tools = array(body, "tools")
    if tools:
        chat["tools"] = [
            {"type": "function", "function": {"name": tool.get("name"), "parameters": tool.get("input_schema")}}
            for tool in tools
            if isinstance(tool, dict)
        ]
    choice = body.get("tool_choice")
    if isinstance(choice, dict):
        named = {"type": "function", "function": {"name": choice.get("name")}}
        chosen: dict[object, object] = {"any": "required", "tool": named, "none": "none"}
        chat["tool_choice"] = chosen.get(choice.get("type"), "auto")
    return chat


def _blocks(content: object) -> object:
    """Content blocks as chat parts: what a tool was asked and what it said become text."""
    if not isinstance(content, list):
        return content
    parts: list[object] = []
    for block in content:
        kind = block.get("type") if isinstance(block, dict) else None
        if kind == "tool_use":
            called = tool_call_text(str(block.get("name")), orjson.dumps(block.get("input")).decode())
            parts.append({"type": "text", "text": called})
        elif kind == "tool_result":
            inner = block.get("content")
            parts += inner if isinstance(inner, list) else [{"type": "text", "text": str(inner or "")}]
        else:
            parts.append(block)
    return parts


def _usage(sequences: list[Sequence], *, details: bool) -> dict[str, int] | None:
    if untold(sequences):
        return None
    usage = {"input_tokens": prompt_tokens(sequences), "output_tokens": completion_tokens(sequences)}
    if details:
        usage |= {"cache_creation_input_tokens": sequences[0].created, "cache_read_input_tokens": sequences[0].cached}
    return usage


class MessagesUnary(ChatUnary):
    """One message in one piece."""

    def body(self) -> bytes:
        """The message."""
        seq = self.sequences[0]
        said = self.message(seq)
        content: list[dict[str, Any]] = []
        if said["content"]:
            content.append({"type": "text", "text": said["content"]})
        for call in said.get("tool_calls", ()):
            arguments = orjson.loads(call["function"]["arguments"])
            content.append({"type": "tool_use", "id": call["id"], "name": call["function"]["name"], "input": arguments})
        return orjson.dumps(
            {
                "id": self.id,
                "type": "message",
                "role": "assistant",
                "content": content,
                "model": self.asked.model,
                "stop_reason": _STOP_REASONS.get(self.reason(seq) or "stop"),
                "usage": _usage(self.sequences, details=self.engine.settings.enable_prompt_tokens_details),
            }
        )


class MessagesStream(Stream):
    """One message as events."""

    def __init__(self, engine: Engine, exchange: Exchange, asked: Asked, prefix: str) -> None:
        super().__init__(engine, exchange, asked, prefix)
        plan = asked.plan
        self._tools = ToolBlocks(plan) if plan is not None and plan.tool is not None else None
        self._opened = False
        self._in_block = False

    def render(self, seq: Sequence, token: int | None) -> bytes:
        """The events for one token, after the opening one if it is the first."""
        opening = b""
        if not self._opened:
            self._opened = True
            opening = self._message_start()
        if self._tools is not None:
            shown, opens = self._tools.events(seq)
            self._in_block = self._in_block or opens
            return opening + shown
        if not seq.delta:
            return opening
        if not self._in_block:
            self._in_block = True
            opening += chunk(
                b'event: content_block_start\ndata: {"type":"content_block_start","content_block":'
                b'{"type":"text","text":""},"index":0}\n\n'
            )
        return opening + chunk(
            b'event: content_block_delta\ndata: {"type":"content_block_delta","delta":'
            b'{"type":"text_delta","text":"%b"},"index":0}\n\n' % seq.delta
        )

    def _message_start(self) -> bytes:
        message: dict[str, Any] = {"id": self.id, "type": "message", "role": "assistant", "content": []}
        message["model"] = self.asked.model
        message |= {"stop_reason": None, "stop_sequence": None}
        message["usage"] = {"input_tokens": prompt_tokens(self.sequences), "output_tokens": 0}
        return _event("message_start", {"message": message})

    def finish(self) -> None:
        """Close the block and the message."""
        end = _event("content_block_stop", {"index": 0}) if self._in_block else b""
        reason = _STOP_REASONS.get(self.reason(self.sequences[0]) or "stop")
        usage = _usage(self.sequences, details=self.engine.settings.enable_prompt_tokens_details)
        delta = {"stop_reason": reason, "stop_sequence": None}
        end += _event("message_delta", {"delta": delta, "usage": usage})
        self.exchange.write(end + _event("message_stop", {}))
        self.exchange.end()

    def break_off(self, message: str) -> None:
        """Anthropic's error event; what vLLM says in it is what went wrong as it read its own error."""
        error = {"type": "internal_error", "message": _UNREAD % (message[:2], message[:2])}
        self.exchange.write(chunk(b"event: error\ndata: " + orjson.dumps({"type": "error", "error": error}) + b"\n\n"))
        self.exchange.end()


def _event(kind: str, fields: dict[str, Any]) -> bytes:
    return chunk(b"event: %b\ndata: %b\n\n" % (kind.encode(), orjson.dumps({"type": kind} | fields)))
