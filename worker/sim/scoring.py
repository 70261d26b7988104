"""`/v1/rerank` and `/v1/score`: how well texts go together, by their vectors."""

from __future__ import annotations

import orjson
from tailrace.worker.sim.engine import Engine
from tailrace.worker.sim.errors import bad_request, invalid
from tailrace.worker.sim.exchange import Exchange
from tailrace.worker.sim.pooling import Pooled, compute, listed
from tailrace.worker.sim.tokenizer import encode
from tailrace.worker.sim.usage import prompt_tokens
from tailrace.worker.sim.validation import Body, integer, json_body, required
from tailrace.worker.sim.vectors import embed, similarity

_PAIRS = (("text_1", "text_2"), ("queries", "documents"), ("queries", "items"), ("data_1", "data_2"))


def score(engine: Engine, exchange: Exchange) -> None:
    """Score pairs of texts: one against each, or each against its fellow."""
    body = json_body(exchange.request.body, exchange.request.headers.get(b"content-type", b""))
    names = next((pair for pair in _PAIRS if pair[0] in body and pair[1] in body), None)
    if names is None:
        missing = "text_2" if "text_1" in body else "text_1"
        raise invalid("missing", f"body.{missing}", "Field required", body)
    first, second = (_texts(body, name) for name in names)
    if len(first) == 1:
        first = first * len(second)
    if len(first) != len(second):
        raise bad_request("Input lengths must be either 1:1, 1:N or N:N")
    pairs = list(zip(first, second, strict=True))

    def item(index: int, ids: list[int]) -> Body:
        return {"index": index, "object": "score", "score": _match(engine, *pairs[index])}

    model = engine.resolve(body.get("model"))
    compute(engine, exchange, model, [[*encode(a), *encode(b)] for a, b in pairs], "score-", listed(item))


def rerank(engine: Engine, exchange: Exchange) -> None:
    """Order documents by how well they go with a query."""
    body = json_body(exchange.request.body, exchange.request.headers.get(b"content-type", b""))
    query = required(body, "query")
    if not isinstance(query, str):
        raise invalid("string_type", "body.query", "Input should be a valid string", query)
    documents = _texts(body, "documents")
    top = integer(body, "top_n") or len(documents)

    def render(answer: Pooled) -> bytes:
        scores = [_match(engine, query, text) for text in documents]
        best = sorted(range(len(documents)), key=lambda at: -scores[at])[:top]
        results = [
            {"index": at, "document": {"text": documents[at], "multi_modal": None}, "relevance_score": scores[at]}
            for at in best
        ]
        tokens = prompt_tokens(answer.sequences)
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return orjson.dumps({"id": answer.id, "model": answer.asked.model, "usage": usage, "results": results})

    model = engine.resolve(body.get("model"))
    compute(engine, exchange, model, [[*encode(query), *encode(text)] for text in documents], "rerank-", render)


def _match(engine: Engine, one: str, other: str) -> float:
    size = engine.settings.embedding_dim
    return similarity(embed(encode(one), size), embed(encode(other), size))


def _texts(body: Body, name: str) -> list[str]:
    given = required(body, name)
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) and text for text in texts):
        raise invalid("list_type", f"body.{name}", "Input should be a valid list", given)
    return texts
