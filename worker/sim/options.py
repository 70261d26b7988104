"""The sampling fields that the generating routes have in common, read and checked."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from tailrace.worker.sim.errors import bad_request, bad_value, invalid
from tailrace.worker.sim.sequence import Sampling
from tailrace.worker.sim.tokenizer import VOCAB_SIZE
from tailrace.worker.sim.validation import Body, array, boolean, integer, mapping, number

_GREEDY_BELOW = 1e-5
_HOTTEST = 2
_MOST_LOGPROBS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a request asks for beside its prompt."""

    max_tokens: int | None
    temperature: float
    top_p: float
    n: int
    seed: int | None
    stop: tuple[str, ...]
    stop_token_ids: frozenset[int]
    include_stop: bool
    ignore_eos: bool
    min_tokens: int
    priority: int
    logprobs: int | None
    stream: bool
    include_usage: bool
    continuous_usage: bool
    return_token_ids: bool
    cache_salt: str

    def sampling(self, prompt: int, max_model_len: int, default: int | None = None) -> Sampling:
        """How to sample after a prompt of so many tokens; refuses what cannot be done."""
        asked = self.max_tokens if self.max_tokens is not None else default
        check_length(prompt, asked if self.max_tokens is not None else None, max_model_len)
        self._check_ranges()
        room = max_model_len - prompt
        return Sampling(
            max_tokens=room if asked is None else min(asked, room),
            greedy=self.temperature < _GREEDY_BELOW,
            seed=self.seed,
            stop=self.stop,
            stop_token_ids=self.stop_token_ids,
            include_stop=self.include_stop,
            ignore_eos=self.ignore_eos,
            min_tokens=self.min_tokens,
            logprobs=self.logprobs,
            priority=self.priority,
        )

    def _check_ranges(self) -> None:
        if self.n < 1:
            raise bad_request(f"n must be at least 1, got {self.n}.")
        if not 0 <= self.temperature <= _HOTTEST:
            whole = math.isfinite(self.temperature)
            rule = f"in [0, {_HOTTEST}]" if self.temperature > 0 else "non-negative"
            message = f"temperature must be {rule if whole else 'a finite number'}, got {self.temperature}."
            raise bad_value(message, "temperature", self.temperature)
        if not 0 < self.top_p <= 1:
            raise bad_value(f"top_p must be in (0, 1], got {self.top_p}.", "top_p", self.top_p)
        if self.max_tokens is not None and self.max_tokens < 1:
            message = f"max_tokens must be at least 1, got {self.max_tokens}."
            raise bad_value(message, "max_tokens", self.max_tokens)
        if self.min_tokens < 0:
            raise bad_request(f"min_tokens must be greater than or equal to 0, got {self.min_tokens}.")
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise bad_request(
                f"min_tokens must be less than or equal to max_tokens={self.max_tokens}, got {self.min_tokens}."
            )
        self._check_logprobs()
        if self.temperature < _GREEDY_BELOW and self.n > 1:
            raise bad_request(f"n must be 1 when using greedy sampling, got {self.n}.")

    def _check_logprobs(self) -> None:
        if self.logprobs is None:
            return
        if self.logprobs < -1:
            message = f"logprobs must be non-negative or -1, got {self.logprobs}."
            raise bad_value(message, "logprobs", self.logprobs)
        # -1 asks for the whole vocabulary.
        asked = VOCAB_SIZE if self.logprobs == -1 else self.logprobs
        if asked > _MOST_LOGPROBS:
            message = f"Requested sample logprobs of {asked}, which is greater than max allowed: {_MOST_LOGPROBS}"
            raise bad_value(message, "logprobs", asked)


def check_length(prompt: int, output: int | None, limit: int) -> None:
    """Refuse a prompt that does not fit, alone or with the output asked for."""
    if output is not None and output > limit:
        message = (
            f"max_tokens={output} cannot be greater than max_model_len={limit}. Please request fewer output tokens."
        )
        raise bad_value(message, "max_tokens", output)
    begin = f"This model's maximum context length is {limit} tokens. However, "
    if prompt >= limit:
        # vLLM stops counting one token beyond the limit.
        most = limit + 1
        message = (
            f"{begin}your prompt contains at least {most} input tokens, which exceeds this limit even without any "
            "output tokens. Please reduce the length of the input prompt."
        )
        raise bad_value(message, "input_tokens", most)
    if output is not None and output > 0 and prompt + output > limit:
        most = limit - output + 1
        message = (
            f"{begin}you requested {output} output tokens and your prompt contains at least {most} input tokens, for a "
            f"total of at least {limit + 1} tokens. Please reduce the length of the input prompt or the number of "
            "requested output tokens."
        )
        raise bad_value(message, "input_tokens", most)


def read_options(body: Body, *, limits: tuple[str, ...], stop: str = "stop", logprobs: int | None = None) -> Options:
    """Read the fields; the first of `limits` that is set caps the tokens, `stop` names the stop strings' field."""
    stream = boolean(body, "stream")
    wanted = mapping(body, "stream_options")
    if wanted and not stream:
        message = "Stream options can only be defined when `stream=True`. (parameter=stream_options)"
        raise bad_request(message, "stream_options")
    caps = [integer(body, name) for name in limits]
    temperature, top_p, n = number(body, "temperature"), number(body, "top_p"), integer(body, "n")
    include_usage = bool(wanted and wanted.get("include_usage"))
    return Options(
        max_tokens=next((cap for cap in caps if cap is not None), None),
        temperature=1.0 if temperature is None else temperature,
        top_p=1.0 if top_p is None else top_p,
        n=1 if n is None else n,
        seed=integer(body, "seed"),
        stop=_stops(body, stop),
        stop_token_ids=frozenset(_ids(array(body, "stop_token_ids") or [])),
        include_stop=boolean(body, "include_stop_str_in_output"),
        ignore_eos=boolean(body, "ignore_eos"),
        min_tokens=integer(body, "min_tokens") or 0,
        priority=integer(body, "priority") or 0,
        logprobs=logprobs,
        stream=stream,
        include_usage=include_usage,
        continuous_usage=include_usage and bool(wanted and wanted.get("continuous_usage_stats")),
        return_token_ids=boolean(body, "return_token_ids"),
        cache_salt=str(body.get("cache_salt") or ""),
    )


def _stops(body: Body, name: str) -> tuple[str, ...]:
    given = body.get(name)
    if given is None:
        return ()
    stops = [given] if isinstance(given, str) else given
    if not isinstance(stops, list) or not all(isinstance(stop, str) for stop in stops):
        raise invalid("string_type", f"body.{name}", "Input should be a valid string", given)
    if "" in stops:
        raise bad_request("stop cannot contain an empty string.")
    return tuple(stops)


def _ids(given: list[Any]) -> list[int]:
    if not all(isinstance(token, int) and not isinstance(token, bool) for token in given):
        raise invalid("int_type", "body.stop_token_ids", "Input should be a valid integer", given)
    return given
