"""From a checked request to sequences in the engine, and from their tokens to the client: what all dialects share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from zlib import crc32

from tailrace.worker.sim.engine import Engine
from tailrace.worker.sim.errors import ENGINE_DEAD, engine_dead, engine_error, in_stream, queue_full
from tailrace.worker.sim.exchange import Exchange, chunk
from tailrace.worker.sim.failures import BESIDE, Fault
from tailrace.worker.sim.options import Options
from tailrace.worker.sim.sequence import Plan, Sampling, Sequence, salt_of
from tailrace.worker.sim.text import TABLES

DONE = b"data: [DONE]\n\n"
GARBAGE = b'data: {"id":"chatcmpl-0","object":"chat.completion.chunk","choices":[{"index":0,"del\n\n'
_BROKEN_BODY = b'{"id":"chatcmpl-0","object":"chat.completion","choices":[{"index":0,"mess'


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request that makes sense: what to generate, and how to show it."""

    model: str
    prompts: list[list[int]]
    sampling: Sampling
    options: Options
    plan: Plan | None = None


class Answer(ABC):
    """One request's sequences and the way their tokens go to the client."""

    def __init__(self, engine: Engine, exchange: Exchange, asked: Asked, prefix: str) -> None:
        self.engine = engine
        self.exchange = exchange
        self.asked = asked
        self.id = exchange.answer_id(prefix)
        self.created = int(engine.clock.wall())
        self.open = 0
        """Sequences that are not complete."""
        adapter = asked.model if asked.model in engine.adapters else ""
        salt = crc32(adapter.encode(), crc32(asked.options.cache_salt.encode()))
        samples = range(asked.options.n if asked.sampling.max_tokens else 1)
        self.sequences = [
            Sequence(
                prompt,
                asked.sampling,
                self,
                index=at * len(samples) + sample,
                salt=salt_of(asked.model, asked.sampling, sample, prompt, engine.rng.getrandbits(32)),
                cache_salt=salt,
                adapter=adapter,
                plan=asked.plan,
                answer_tokens=engine.settings.answer_tokens,
                after=TABLES[engine.settings.text],
            )
            for at, prompt in enumerate(asked.prompts)
            for sample in samples
        ]

    def start(self) -> None:
        """Queue the sequences, or refuse."""
        engine = self.engine
        if engine.state == "dead":
            raise engine_dead()
        if not engine.scheduler.fits(len(self.sequences)):
            engine.metrics.rejected += 1
            raise queue_full()
        for fault in self.exchange.faults:
            if fault.fail in BESIDE:
                for seq in self.sequences:
                    if fault.fail == "slow":
                        seq.slow *= fault.factor
                    else:
                        seq.claim = fault
            else:
                self.sequences[0].strike(fault)
        self.exchange.on_gone = self.cancel
        self.open = len(self.sequences)
        if self.asked.options.stream:
            self.exchange.open_stream()
        engine.scheduler.submit(self.sequences)

    def cancel(self) -> None:
        """Free the engine of what is left of this answer."""
        for seq in self.sequences:
            self.engine.scheduler.cancel(seq)

    @abstractmethod
    def on_token(self, seq: Sequence, token: int | None) -> None:
        """One more token of one sequence; None where it ends without one."""

    def reason(self, seq: Sequence) -> str | None:
        """Why a sequence ended, as chat clients are told."""
        plan = self.asked.plan
        return plan.reason if plan is not None and seq.finish_reason == "stop" else seq.finish_reason

    def on_finish(self, seq: Sequence) -> None:
        """One sequence is complete; with the last one the answer is."""
        self.open -= 1
        if not self.open:
            self.finish()

    @abstractmethod
    def finish(self) -> None:
        """Send what comes at the end."""

    @abstractmethod
    def half(self, seq: Sequence) -> None:
        """Send half of what would come next."""

    @abstractmethod
    def garbage(self) -> None:
        """Send something that is no JSON."""

    def on_strike(self, seq: Sequence, fault: Fault) -> None:
        """Let a fault happen to this answer."""
        if fault.fail == "garbage_event":
            self.garbage()
        elif fault.fail == "abort":
            seq.finish_reason, seq.delta = "abort", b""
            self.on_token(seq, None)
        elif fault.fail == "error_event":
            self.break_off(fault.message)
            self.cancel()
        elif fault.fail in ("false_end", "false_done"):
            self.stop_short(done=fault.fail == "false_done")
            self.cancel()
        elif fault.fail in ("cut", "half_event"):
            if fault.fail == "half_event":
                self.half(seq)
            self.exchange.cut(rst=fault.rst)
            self.cancel()
        elif fault.fail != "stall":
            self.engine.incident(fault)

    def on_engine_death(self) -> None:
        """Tell the client that there will be no more."""
        self.break_off(ENGINE_DEAD)

    @abstractmethod
    def break_off(self, message: str) -> None:
        """End with an error, as vLLM does where the engine fails."""

    @abstractmethod
    def stop_short(self, *, done: bool) -> None:
        """End as if all was well, without a reason; `done` after the words that end a stream."""


class Stream(Answer):
    """An answer sent as events."""

    def on_token(self, seq: Sequence, token: int | None) -> None:
        """Send the token at once."""
        self.exchange.write(self.render(seq, token))

    @abstractmethod
    def render(self, seq: Sequence, token: int | None) -> bytes:
        """The chunks, framed, that show one token, or an end without one; may be empty."""

    def half(self, seq: Sequence) -> None:
        """Send the first half of the next chunk."""
        framed = self.render(seq, seq.advance())
        self.exchange.write(framed[: len(framed) // 2])

    def garbage(self) -> None:
        """Send an event that ends in the middle of its JSON."""
        self.exchange.event(GARBAGE)

    def break_off(self, message: str) -> None:
        """An error event, then the stream's usual end."""
        self.exchange.write(chunk(in_stream(message)) + chunk(DONE))
        self.exchange.end()

    def stop_short(self, *, done: bool) -> None:
        """End the body as it should, after `[DONE]` or not."""
        if done:
            self.exchange.event(DONE)
        self.exchange.end()


class Unary(Answer):
    """An answer sent in one piece."""

    def on_token(self, seq: Sequence, token: int | None) -> None:
        """Nothing is shown before the end."""

    def on_strike(self, seq: Sequence, fault: Fault) -> None:
        """A connection that ended before the head would look like one that had been idle: it ends in the body."""
        if fault.fail == "cut":
            self.half(seq)
        super().on_strike(seq, fault)

    @abstractmethod
    def body(self) -> bytes:
        """The whole answer."""

    def finish(self) -> None:
        """Send it."""
        self.exchange.reply(200, self.body())

    def half(self, seq: Sequence) -> None:
        """Send the head and half of what is there."""
        body = self.body()
        self.exchange.reply(200, body, shown=len(body) // 2)

    def garbage(self) -> None:
        """Send a body that ends in the middle of its JSON."""
        self.exchange.reply(200, _BROKEN_BODY)
        self.cancel()

    def break_off(self, message: str) -> None:
        """A 500 instead of the answer."""
        self.exchange.refuse(engine_error(message))

    def stop_short(self, *, done: bool) -> None:
        """Send what there is."""
        self.exchange.reply(200, self.body())
