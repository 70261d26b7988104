"""`/tokenize` and `/detokenize`."""

from __future__ import annotations

import orjson
from tailrace.worker.sim.engine import Engine
from tailrace.worker.sim.errors import draining, invalid, neither
from tailrace.worker.sim.exchange import Exchange
from tailrace.worker.sim.template import read_opening
from tailrace.worker.sim.tokenizer import VOCAB_SIZE, encode, spell_out, token_str
from tailrace.worker.sim.validation import array, boolean, json_body, required


def tokenize(engine: Engine, exchange: Exchange) -> None:
    """Say the ids of a text or of a conversation."""
    body = json_body(exchange.request.body, exchange.request.headers.get(b"content-type", b""))
    model = engine.resolve(body.get("model"))
    if engine.state == "draining":
        raise draining()
    messages = array(body, "messages")
    if messages is not None:
        ids = read_opening(body).prompt(messages, model)
    else:
        prompt = body.get("prompt")
        if prompt is None:
            raise neither(body, "prompt", "messages")
        if not isinstance(prompt, str):
            raise invalid("string_type", "body.prompt", "Input should be a valid string", prompt)
        ids = encode(prompt)
    said = {"count": len(ids), "max_model_len": engine.settings.max_model_len, "tokens": ids, "token_strs": None}
    if boolean(body, "return_token_strs"):
        said["token_strs"] = [token_str(token) for token in ids]
    exchange.reply(200, orjson.dumps(said))


def detokenize(engine: Engine, exchange: Exchange) -> None:
    """Say the text of ids."""
    body = json_body(exchange.request.body, exchange.request.headers.get(b"content-type", b""))
    engine.resolve(body.get("model"))
    if engine.state == "draining":
        raise draining()
    ids = required(body, "tokens")
    if not isinstance(ids, list) or not all(isinstance(token, int) and not isinstance(token, bool) for token in ids):
        raise invalid("list_type", "body.tokens", "Input should be a valid list", ids)
    if any(token < 0 for token in ids):
        at = next(at for at, token in enumerate(ids) if token < 0)
        message = "Input should be greater than or equal to 0"
        raise invalid("greater_than_equal", f"body.tokens.{at}", message, str(ids[at]), {"ge": 0})
    # Ids that the vocabulary lacks say nothing.
    exchange.reply(200, orjson.dumps({"prompt": spell_out([token for token in ids if token < VOCAB_SIZE])}))
