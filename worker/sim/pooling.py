"""The routes of models that do not speak: `/v1/embeddings`, `/pooling` and `/classify`."""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable
from typing import Any

import orjson
from tailrace.worker.sim.answer import Asked, Unary
from tailrace.worker.sim.completions import read_prompts
from tailrace.worker.sim.engine import Engine
from tailrace.worker.sim.errors import bad_request, draining, invalid
from tailrace.worker.sim.exchange import Exchange
from tailrace.worker.sim.options import check_length, read_options
from tailrace.worker.sim.sequence import Sampling
from tailrace.worker.sim.template import chat_messages, chat_prompt
from tailrace.worker.sim.usage import counts, prompt_tokens
from tailrace.worker.sim.validation import Body, array, integer, json_body, required, string
from tailrace.worker.sim.vectors import embed

_LABELS = 2


def embeddings(engine: Engine, exchange: Exchange) -> None:
    """Answer with one vector a text."""
    body = _body(exchange)
    size = _size(engine, body)
    encoding = string(body, "encoding_format") or "float"
    if encoding not in ("float", "base64"):
        raise invalid("literal_error", "body.encoding_format", "Input should be 'float' or 'base64'", encoding)

    def item(index: int, ids: list[int]) -> Body:
        vector = embed(ids, size)
        shown = _base64(vector) if encoding == "base64" else vector
        return {"index": index, "object": "embedding", "embedding": shown}

    _start(engine, exchange, body, "embd-", item)


def pooling(engine: Engine, exchange: Exchange) -> None:
    """Answer with what the model's pooler gives: here the vector of each token."""
    body = _body(exchange)
    size = _size(engine, body)

    def item(index: int, ids: list[int]) -> Body:
        return {"index": index, "object": "pooling", "data": [embed([token], size) for token in ids]}

    _start(engine, exchange, body, "pool-", item)


def classify(engine: Engine, exchange: Exchange) -> None:
    """Answer with a label a text."""

    def item(index: int, ids: list[int]) -> Body:
        first = (1 + embed(ids, 16)[0]) / 2
        probs = [first, 1 - first]
        label = f"LABEL_{probs.index(max(probs))}"
        return {"index": index, "label": label, "probs": probs, "num_classes": _LABELS}

    _start(engine, exchange, _body(exchange), "classify-", item)


def _body(exchange: Exchange) -> Body:
    return json_body(exchange.request.body, exchange.request.headers.get(b"content-type", b""))


def _size(engine: Engine, body: Body) -> int:
    size = integer(body, "dimensions")
    if size is None:
        return engine.settings.embedding_dim
    if not 1 <= size <= engine.settings.embedding_dim:
        raise bad_request(f"dimensions must be between 1 and {engine.settings.embedding_dim}, got {size}.")
    return size


def _base64(vector: list[float]) -> str:
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()


def _start(engine: Engine, exchange: Exchange, body: Body, prefix: str, item: Callable[[int, list[int]], Body]) -> None:
    model = engine.resolve(body.get("model"))
    if (messages := array(body, "messages")) is not None:
        prompts = [chat_prompt(chat_messages(messages, model), generate=False)]
    else:
        prompts = read_prompts(required(body, "input"), "input")
    compute(engine, exchange, model, prompts, prefix, listed(item))


def compute(
    engine: Engine,
    exchange: Exchange,
    model: str,
    prompts: list[list[int]],
    prefix: str,
    render: Callable[[Pooled], bytes],
) -> None:
    """Put prompts through the engine and answer with what `render` makes of them."""
    for prompt in prompts:
        check_length(len(prompt), None, engine.settings.max_model_len)
    if engine.state == "draining":
        raise draining()
    asked = Asked(model=model, prompts=prompts, sampling=Sampling(max_tokens=0), options=read_options({}, limits=()))
    Pooled(engine, exchange, asked, prefix, render).start()


class Pooled(Unary):
    """An answer computed from prompts alone."""

    def __init__(
        self, engine: Engine, exchange: Exchange, asked: Asked, prefix: str, render: Callable[[Pooled], bytes]
    ) -> None:
        super().__init__(engine, exchange, asked, prefix)
        self._render = render

    def body(self) -> bytes:
        """What was made of the prompts."""
        return self._render(self)


def listed(item: Callable[[int, list[int]], Body]) -> Callable[[Pooled], bytes]:
    """Renders a list with one item a prompt."""

    def render(answer: Pooled) -> bytes:
        usage: dict[str, Any] = counts(prompt_tokens(answer.sequences), 0)
        usage |= {"prompt_tokens_details": None, "completion_tokens_details": None}
        head = {"id": answer.id, "object": "list", "created": answer.created, "model": answer.asked.model}
        items = [item(at, prompt) for at, prompt in enumerate(answer.asked.prompts)]
        return orjson.dumps(head | {"data": items, "usage": usage})

    return render
