"""One answer in the making: its tokens so far, and what ends it."""

from __future__ import annotations

from collections.abc import Sequence as Ids
from dataclasses import dataclass
from typing import Literal, Protocol
from zlib import crc32

import orjson
from tailrace.worker.sim.failures import Fault
from tailrace.worker.sim.stops import StopStrings
from tailrace.worker.sim.text import TABLES, Table, advance, alternatives, checksum, natural_length, next_token
from tailrace.worker.sim.tokenizer import EOS, TOKEN_JSON, VOCAB_SIZE, decode, decode_step, unshown

FinishReason = Literal["stop", "length", "abort", "error"]
STRUCK = -1
"""`Sequence.advance` came to the token at which the request's fault strikes; nothing was said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How one sequence is to be sampled and when it must end."""

    max_tokens: int
    """0 computes the prompt only, as pooling does."""
    greedy: bool = False
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: frozenset[int] = frozenset()
    include_stop: bool = False
    ignore_eos: bool = False
    min_tokens: int = 0
    logprobs: int | None = None
    """How many alternatives to name beside each token's own probability; None: no probabilities."""
    priority: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """An answer that is settled beforehand: a call of a tool, or JSON after a schema."""

    ids: list[int]
    tool: str | None = None
    arguments: range = range(0)
    """Which of the ids spell the tool's arguments."""
    reason: Literal["stop", "tool_calls"] = "stop"
    """How the client is told that it came to its end: a tool that was named ends with `stop` all the same."""


class Sink(Protocol):
    """Who waits for the tokens."""

    def on_token(self, seq: Sequence, token: int) -> None:
        """One more token; `seq.delta` is its text, `seq.finish_reason` is set with the last."""

    def on_finish(self, seq: Sequence) -> None:
        """The sequence is complete and has left the engine."""

    def on_strike(self, seq: Sequence, fault: Fault) -> None:
        """The fault of this sequence strikes now."""

    def on_engine_death(self) -> None:
        """There will be no more tokens."""


class Sequence:
    """The state of one sequence; the scheduler alone moves it on."""

    __slots__ = (
        "_mark", "_pending", "_slow", "_stops", "adapter", "after", "arrived", "blocks", "cache_salt", "cached",
        "claim", "computed", "created", "delta", "done", "eos_at", "fault", "fault_at", "finish_reason",
        "finished", "first", "ids", "index", "last", "latest", "order", "plan", "prompt", "prompt_pending",
        "resume_at", "sampling", "shared", "sink", "slow", "started", "state", "stop_reason",
    )  # fmt: skip

    def __init__(
        self,
        prompt: Ids[int],
        sampling: Sampling,
        sink: Sink,
        *,
        index: int = 0,
        salt: int = 0,
        cache_salt: int = 0,
        adapter: str = "",
        plan: Plan | None = None,
        answer_tokens: int = 0,
        after: Table = TABLES["plain"],
    ) -> None:
        self.prompt = prompt
        self.sampling = sampling
        self.sink = sink
        self.index = index
        self.cache_salt = cache_salt
        self.adapter = adapter
        self.after = after
        """What follows what in this model's language."""
        self.plan = plan.ids if plan is not None else None
        self.ids: list[int] = []
        self.delta = b""
        """The text that the latest token completed, escaped for a JSON string."""
        self.finish_reason: FinishReason | None = None
        self.stop_reason: str | int | None = None
        self.state = checksum(prompt, salt)
        self.last = prompt[-1] if prompt else EOS
        self.eos_at = self._end(salt, answer_tokens)
        self.claim: Fault | None = None
        """What is told of the tokens instead of the truth."""
        self.fault: Fault | None = None
        self.fault_at: int | None = None
        self._mark = 0
        self.remark()
        self.prompt_pending = unshown(prompt)
        self._pending = self.prompt_pending
        self._stops: StopStrings | None = None
        if sampling.stop:
            self._stops = StopStrings(sampling.stop, include=sampling.include_stop, least=sampling.min_tokens)
        self._slow = bool(self._pending or sampling.stop or sampling.stop_token_ids)

        self.order = 0
        self.slow = 1.0
        self.done = False
        self.cached = 0
        self.created = 0
        self.computed = self.blocks = self.shared = 0
        """Tokens in the KV cache and the blocks that they take, of which some were there already."""
        self.resume_at = 0.0
        """It says nothing before; 0 where nothing holds it back."""
        self.arrived = self.started = self.first = self.latest = self.finished = 0.0

    def _end(self, salt: int, answer_tokens: int) -> int | None:
        if self.plan is not None:
            return len(self.plan)
        if self.sampling.ignore_eos:
            return None
        length = natural_length(self.prompt, salt, answer_tokens)
        return None if length is None else max(length, self.sampling.min_tokens)

    def strike(self, fault: Fault) -> None:
        """Have a fault strike before the token that would be number `after_tokens`, counted from 0."""
        self.fault = fault
        self.fault_at = fault.after_tokens or 0
        self.remark()

    def remark(self) -> None:
        """Find the next place where something else happens than one more token."""
        sampling = self.sampling
        marks = [sampling.max_tokens - 1]
        if sampling.stop_token_ids and sampling.min_tokens:
            marks.append(0)
        if self.eos_at is not None:
            marks.append(self.eos_at)
        if self.fault is not None and self.fault_at is not None:
            marks.append(self.fault_at)
        self._mark = min(marks)

    def advance(self) -> int:
        """Say one more token and return it, or STRUCK."""
        said = len(self.ids)
        if said >= self._mark:
            token = self._at_mark(said)
            if token == STRUCK:
                return token
        elif self.plan is not None:
            token = self.plan[said]
        else:
            token = next_token(self.after, self.state, self.last)
        self.state = advance(self.state, token)
        self.last = token
        self.ids.append(token)
        text = TOKEN_JSON[token]
        if self._slow or text is None:
            self._decode(token)
        else:
            self.delta = text
        return token

    def _at_mark(self, said: int) -> int:
        if self.fault is not None and said == self.fault_at:
            return STRUCK
        if said == self.eos_at:
            self.finish_reason = "stop"
            return EOS
        if said + 1 >= self.sampling.max_tokens:
            self.finish_reason = "length"
        if self.plan is not None:
            return self.plan[said]
        token = next_token(self.after, self.state, self.last)
        return self._another(token) if said < self.sampling.min_tokens else token

    def _another(self, token: int) -> int:
        """A token that does not end the answer, where it is too short for that."""
        ends = self.sampling.stop_token_ids
        if token not in ends:
            return token
        others = alternatives(self.after, self.state, self.last, VOCAB_SIZE)
        return next((other for other in others if other not in ends), token)

    def _decode(self, token: int) -> None:
        """The slow way: characters split over tokens, stop strings and stop tokens."""
        sampling = self.sampling
        said = len(self.ids)
        if token in sampling.stop_token_ids and said > sampling.min_tokens and self.finish_reason != "stop":
            self.finish_reason, self.stop_reason = "stop", token
        if self.stop_reason is not None and not sampling.include_stop:
            text = ""
        else:
            text, self._pending = decode_step(self._pending, token)
        if self._stops is not None:
            stop = self._stops.take(text, said)
            if stop is not None:
                self.finish_reason, self.stop_reason = "stop", stop
            text = self._stops.show(ended=self.finish_reason is not None)
        self._slow = bool(self._pending or sampling.stop or sampling.stop_token_ids)
        self.delta = orjson.dumps(text)[1:-1]

    @property
    def text(self) -> str:
        """All that has been said and may be shown in the end."""
        if self._stops is not None:
            return self._stops.text
        ids = self.ids
        if self.stop_reason is not None and not self.sampling.include_stop:
            ids = ids[:-1]
        return decode(ids, self.prompt_pending)


def salt_of(model: str, sampling: Sampling, index: int, prompt: Ids[int], drawn: int) -> int:
    """What keeps two models, seeds or samples apart; greedy answers hang on the model alone.

    A seed starts anew with every request, as in an engine: an answer that is resumed goes on otherwise, for which the
    length of its prompt stands here.
    """
    salt = crc32(model.encode())
    if sampling.greedy:
        return salt
    seed = drawn if sampling.seed is None else f"{sampling.seed}:{len(prompt)}"
    return crc32(f"{seed}:{index}".encode(), salt)
