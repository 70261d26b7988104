"""`/tokenize` and `/detokenize`."""

from __future__ import annotations

import orjson
from tailrace.worker.sim.engine import Engine
from tailrace.worker.sim.errors import bad_request, invalid
from tailrace.worker.sim.exchange import Exchange
from tailrace.worker.sim.template import chat_messages, chat_prompt
from tailrace.worker.sim.tokenizer import VOCAB_SIZE, encode, spell_out, token_str
from tailrace.worker.sim.validation import array, boolean, json_body, required


def tokenize(engine: Engine, exchange: Exchange) -> None:
    """Say the ids of a text or of a conversation."""
    body = json_body(exchange.request.body, exchange.request.headers.get(b"content-type", b""))
    model = engine.resolve(body.get("model"))
    messages = array(body, "messages")
    if messages is not None:
        generate = boolean(body, "add_generation_prompt") if "add_generation_prompt" in body else True
        ids = chat_prompt(chat_messages(messages, model), generate=generate)
    else:
        prompt = required(body, "prompt")
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
    ids = required(body, "tokens")
    if not isinstance(ids, list) or not all(isinstance(token, int) and not isinstance(token, bool) for token in ids):
        raise invalid("list_type", "body.tokens", "Input should be a valid list", ids)
    for token in ids:
        if not 0 <= token < VOCAB_SIZE:
            raise bad_request(f"Token id {token} is out of vocabulary")
    exchange.reply(200, orjson.dumps({"prompt": spell_out(ids)}))
