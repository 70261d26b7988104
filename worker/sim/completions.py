"""`/v1/completions`: from the body to sequences, and the answer in one piece."""

from __future__ import annotations

from typing import Any

import orjson
from tailrace.worker.sim.answer import Asked, Unary
from tailrace.worker.sim.completion_stream import CompletionStream
from tailrace.worker.sim.engine import Engine
from tailrace.worker.sim.errors import bad_request, draining, invalid
from tailrace.worker.sim.exchange import Exchange
from tailrace.worker.sim.logprobs import Ranked, completion_logprobs, ranked
from tailrace.worker.sim.options import read_options
from tailrace.worker.sim.sequence import Sequence
from tailrace.worker.sim.tokenizer import VOCAB_SIZE, encode
from tailrace.worker.sim.usage import full_timing, full_usage
from tailrace.worker.sim.validation import Body, integer, json_body

_DEFAULT_TOKENS = 16


def completions(engine: Engine, exchange: Exchange) -> None:
    """Answer a completion request."""
    body = json_body(exchange.request.body, exchange.request.headers.get(b"content-type", b""))
    asked = _read(engine, body)
    if engine.state == "draining":
        if _is_text(body["prompt"]):
            raise draining()
        _abort(engine, exchange, asked)
        return
    shape = CompletionStream if asked.options.stream else CompletionUnary
    shape(engine, exchange, asked, "cmpl-").start()


def _read(engine: Engine, body: Body) -> Asked:
    given = body.get("prompt")
    if given is None or given == "":
        raise bad_request("Either prompt or prompt_embeds must be provided and non-empty. (parameter=prompt)", "prompt")
    options = read_options(body, limits=("max_tokens",), logprobs=integer(body, "logprobs"))
    model = engine.resolve(body.get("model"))
    prompts = read_prompts(given)
    longest = max(map(len, prompts))
    sampling = options.sampling(longest, engine.settings.max_model_len, _DEFAULT_TOKENS)
    return Asked(model=model, prompts=prompts, sampling=sampling, options=options)


def _is_text(given: object) -> bool:
    return isinstance(given, str) or (isinstance(given, list) and bool(given) and isinstance(given[0], str))


def read_prompts(given: object, name: str = "prompt") -> list[list[int]]:
    """The ids of one or many prompts, each given as text or as ids."""
    if isinstance(given, str):
        prompts = [encode(given)]
    elif isinstance(given, list) and given and all(isinstance(one, str) for one in given):
        prompts = [encode(one) for one in given]
    elif given == []:
        raise bad_request("You must pass at least one prompt")
    elif isinstance(given, list) and all(_is_ids(one) for one in given):
        prompts = given
    elif _is_ids(given):
        prompts = [given]  # type: ignore[list-item]
    else:
        raise invalid("string_type", f"body.{name}", "Input should be a valid string", given)
    for ids in prompts:
        if not ids:
            raise bad_request("The decoder prompt cannot be empty")
        most = max(ids)
        if most >= VOCAB_SIZE or min(ids) < 0:
            raise bad_request(f"Token id {most if most >= VOCAB_SIZE else min(ids)} is out of vocabulary")
    return prompts


def _is_ids(given: object) -> bool:
    return isinstance(given, list) and all(isinstance(one, int) and not isinstance(one, bool) for one in given)


def _abort(engine: Engine, exchange: Exchange, asked: Asked) -> None:
    """What vLLM makes of ids that come while it drains: a complete answer that says nothing.

    In one piece it owns up to `abort`; streamed it has no choice at all, for the engine's word came without a token.
    """
    shape = CompletionStream if asked.options.stream else CompletionUnary
    answer = shape(engine, exchange, asked, "cmpl-")
    if asked.options.stream:
        exchange.open_stream()
    for seq in answer.sequences:
        seq.finish_reason = "abort"
        engine.metrics.finish_reasons["abort"] += 1
    answer.finish()


class CompletionUnary(Unary):
    """Waits for all choices and sends them."""

    _ranked: dict[Sequence, list[Ranked]] | None = None

    def on_token(self, seq: Sequence, token: int | None) -> None:
        """Nothing is shown before the end; probabilities are noted while they are known."""
        if token is not None and (top := self.asked.sampling.logprobs) is not None:
            if self._ranked is None:
                self._ranked = {}
            self._ranked.setdefault(seq, []).append(ranked(seq, top))

    def body(self) -> bytes:
        """The answer with all its choices."""
        settings = self.engine.settings
        return orjson.dumps(
            {
                "id": self.id,
                "object": "text_completion",
                "created": self.created,
                "model": self.asked.model,
                "choices": [self._choice(seq) for seq in self.sequences],
                "service_tier": None,
                "system_fingerprint": self.engine.fingerprint,
                "usage": full_usage(settings, self.sequences, created=False),
                "kv_transfer_params": None,
                "ec_transfer_params": None,
                "metrics": full_timing(settings, self.sequences),
            }
        )

    def _choice(self, seq: Sequence) -> dict[str, Any]:
        shown = self.asked.options.return_token_ids
        logprobs = None
        if self.asked.sampling.logprobs is not None:
            logprobs = completion_logprobs((self._ranked or {}).get(seq, []), 0)
        return {
            "index": seq.index,
            "text": seq.text,
            "logprobs": logprobs,
            "finish_reason": seq.finish_reason,
            "stop_reason": seq.stop_reason,
            "token_ids": seq.ids if shown else None,
            "prompt_logprobs": None,
            "prompt_token_ids": seq.prompt if shown else None,
            "routed_experts": None,
        }
