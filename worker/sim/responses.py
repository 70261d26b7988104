"""`/v1/responses`: OpenAI's newer dialect, text only."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import orjson
from tailrace.worker.sim.answer import Answer, Asked, Stream, Unary
from tailrace.worker.sim.engine import Engine
from tailrace.worker.sim.errors import draining, invalid
from tailrace.worker.sim.exchange import Exchange, chunk
from tailrace.worker.sim.options import read_options
from tailrace.worker.sim.sequence import Sequence
from tailrace.worker.sim.template import chat_messages, chat_prompt
from tailrace.worker.sim.usage import completion_tokens, full_timing, prompt_tokens, untold
from tailrace.worker.sim.validation import Body, json_body, required, string


def responses(engine: Engine, exchange: Exchange) -> None:
    """Answer a responses request."""
    body = json_body(exchange.request.body, exchange.request.headers.get(b"content-type", b""))
    asked = _read(engine, body)
    if engine.state == "draining":
        raise draining()
    shape = ResponseStream if asked.options.stream else ResponseUnary
    shape(engine, exchange, asked, body).start()


def _read(engine: Engine, body: Body) -> Asked:
    given = required(body, "input")
    options = read_options(body, limits=("max_output_tokens",))
    model = engine.resolve(body.get("model"))
    turns: list[Any] = []
    if instructions := string(body, "instructions"):
        turns.append({"role": "system", "content": instructions})
    if isinstance(given, str):
        turns.append({"role": "user", "content": given})
    elif isinstance(given, list):
        turns += [item for item in given if not isinstance(item, dict) or item.get("type", "message") == "message"]
    else:
        raise invalid("string_type", "body.input", "Input should be a valid string", given)
    prompt = chat_prompt(chat_messages(turns, model))
    sampling = options.sampling(len(prompt), engine.settings.max_model_len)
    return Asked(model=model, prompts=[prompt], sampling=sampling, options=options)


class _Shape:
    """The `response` object, as it is before and after the answer."""

    def __init__(self, answer: Answer, body: Body) -> None:
        self._answer = answer
        self._body = body
        self.item_id = f"msg_{uuid4().hex[16:]}"

    def part(self) -> Body:
        """The text, complete."""
        text = self._answer.sequences[0].text
        return {"annotations": [], "text": text, "type": "output_text", "logprobs": None}

    def item(self, *, done: bool) -> Body:
        """The message that holds it."""
        content, status = ([self.part()], "completed") if done else ([], "in_progress")
        head = {"id": self.item_id, "content": content, "role": "assistant", "status": status}
        return head | {"type": "message", "phase": None}

    def response(self, *, done: bool) -> Body:
        """The whole object."""
        answer, body = self._answer, self._body
        cut = done and answer.sequences[0].finish_reason == "length"
        tools = body.get("tools") or []
        shape = {
            "id": answer.id,
            "created_at": answer.created,
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "instructions": body.get("instructions"),
            "metadata": body.get("metadata"),
            "model": answer.asked.model,
            "object": "response",
            "output": [self.item(done=True)] if done else [],
            "parallel_tool_calls": True,
            "temperature": answer.asked.options.temperature,
            "tool_choice": body.get("tool_choice", "auto") if tools else "none",
            "tools": tools,
            "top_p": answer.asked.options.top_p,
            "background": False,
            "max_output_tokens": answer.asked.sampling.max_tokens,
            "max_tool_calls": None,
            "previous_response_id": None,
            "prompt": None,
            "reasoning": None,
            "service_tier": "auto",
            "status": ("incomplete" if cut else "completed") if done else "in_progress",
            "text": None,
            "top_logprobs": None,
            "truncation": "disabled",
            "usage": self._usage() if done else None,
            "user": body.get("user"),
        }
        if done:
            shape["metrics"] = full_timing(answer.engine.settings, answer.sequences)
        shape |= {"presence_penalty": 0.0, "frequency_penalty": 0.0, "kv_transfer_params": None}
        return shape | {"ec_transfer_params": None, "input_messages": None, "output_messages": None}

    def whole(self) -> bytes:
        """The response once it is complete; from then on it can be asked for again."""
        body = orjson.dumps(self.response(done=True))
        if self._body.get("store") is not False:
            self._answer.engine.kept.keep(self._answer.id, body)
        return body

    def _usage(self) -> Body | None:
        seq, sequences = self._answer.sequences[0], self._answer.sequences
        if untold(sequences):
            return None
        asked, answered = prompt_tokens(sequences), completion_tokens(sequences)
        cached = {"cached_tokens": seq.cached, "cache_write_tokens": seq.created}
        said = {"reasoning_tokens": 0, "tool_output_tokens": 0}
        return {
            "input_tokens": asked,
            "input_tokens_details": cached | {"input_tokens_per_turn": [], "cached_tokens_per_turn": []},
            "output_tokens": answered,
            "output_tokens_details": said | {"output_tokens_per_turn": [], "tool_output_tokens_per_turn": []},
            "total_tokens": asked + answered,
        }


class ResponseUnary(Unary):
    """A response in one piece."""

    def __init__(self, engine: Engine, exchange: Exchange, asked: Asked, body: Body) -> None:
        super().__init__(engine, exchange, asked, "resp_")
        self._shape = _Shape(self, body)

    def body(self) -> bytes:
        """The response."""
        return self._shape.whole()


class ResponseStream(Stream):
    """A response as events."""

    def __init__(self, engine: Engine, exchange: Exchange, asked: Asked, body: Body) -> None:
        super().__init__(engine, exchange, asked, "resp_")
        self._shape = _Shape(self, body)
        self._number = 0
        item = self._shape.item_id.encode()
        self._before = b'event: response.output_text.delta\ndata: {"content_index":0,"delta":"'
        self._after = b'","item_id":"%b","logprobs":[],"output_index":0,"sequence_number":' % item

    def start(self) -> None:
        """Queue the sequence; the first two events do not wait for it."""
        super().start()
        begun = {"response": self._shape.response(done=False)}
        self.exchange.write(self._event("response.created", begun) + self._event("response.in_progress", begun))

    def render(self, seq: Sequence, token: int | None) -> bytes:
        """The event for one token, after the opening ones if it is the first."""
        opening = b""
        if len(seq.ids) == 1:
            part = {"annotations": [], "text": "", "type": "output_text", "logprobs": []}
            place = {"content_index": 0, "item_id": self._shape.item_id, "output_index": 0}
            opening = self._event(
                "response.output_item.added", {"item": self._shape.item(done=False), "output_index": 0}
            )
            opening += self._event("response.content_part.added", place | {"part": part})
        if not seq.delta:
            return opening
        number, self._number = self._number, self._number + 1
        end = b',"type":"response.output_text.delta"}\n\n'
        return opening + chunk(b"%b%b%b%d%b" % (self._before, seq.delta, self._after, number, end))

    def finish(self) -> None:
        """The texts, items and the response once more, complete."""
        part = self._shape.part()
        place = {"content_index": 0, "item_id": self._shape.item_id}
        whole = place | {"logprobs": [], "output_index": 0}
        self.exchange.write(
            self._event("response.output_text.done", whole, text=part["text"])
            + self._event("response.content_part.done", place | {"output_index": 0, "part": part})
            + self._event("response.output_item.done", {"item": self._shape.item(done=True), "output_index": 0})
            + self._event("response.completed", {"response": orjson.Fragment(self._shape.whole())})
        )
        self.exchange.end()

    def _event(self, kind: str, fields: Body, **after: object) -> bytes:
        fields = fields | {"sequence_number": self._number} | after | {"type": kind}
        self._number += 1
        return chunk(b"event: %b\ndata: %b\n\n" % (kind.encode(), orjson.dumps(fields)))

    def break_off(self, message: str) -> None:
        """The stream ends in the middle: vLLM has no word for it here."""
        self.exchange.cut()
