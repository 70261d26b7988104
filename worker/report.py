"""What a sidecar tells of itself and its engine: whole, as a line of its state feed, and short, on every answer."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

import orjson
from tailrace.proxy.fault import Reject, Whose
from tailrace.proxy.standing import UNSENT
from tailrace.proxy.watch.feed import BEAT
from tailrace.worker.engine.state import EngineState, Phase
from tailrace.worker.gate import Gate

_SOON = 1.0
_LATER = 5.0
_PHASES = {
    Phase.STARTING: "the engine is starting",
    Phase.WARMING: "the engine is warming up",
    Phase.READY: "the engine takes no calls",
    Phase.SUSPECT: "the engine does not answer, or its work makes no progress",
    Phase.DEAD: "the engine is gone",
}
_RETRY_ELSEWHERE = ((b"x-should-retry", b"true"),)


class Report:
    """The present state, from the engine's and the gate's; `changed` is called with whether it is urgent."""

    __slots__ = ("_load", "_own", "changed", "draining", "engine", "gate")

    def __init__(self, gate: Gate, *, own_engine: bool) -> None:
        self.gate = gate
        self.engine = EngineState()
        self.draining = False
        self.changed: Callable[[bool], None] = _unheard
        self._own = own_engine
        self._load: bytes | None = None
        gate.changed = self._gate_changed

    def _gate_changed(self) -> None:
        self._load = None
        self.changed(False)

    def update(self, engine: EngineState, *, draining: bool) -> None:
        """Take in what the engine or an operator has changed."""
        before, was_draining = self.engine, self.draining
        self.engine, self.draining = engine, draining
        self._load = None
        self.changed(before.phase is not engine.phase or was_draining is not draining)

    @property
    def takes_calls(self) -> bool:
        """Whether new calls should be sent here."""
        return self.engine.ready and not self.draining

    def figures(self) -> tuple[int, int]:
        """Calls that run and calls that wait, here and in the engine.

        The gate's count is exact now, the engine's is a reading old; but an engine of somebody else's may have work
        that did not come through this gate.
        """
        inside, engine = self.gate.inside, self.engine
        held_back = min(engine.waiting, inside) if self._own else engine.waiting
        running = inside - held_back if self._own else max(inside - held_back, engine.running)
        return running, held_back + self.gate.waiting

    def load(self) -> bytes:
        """The load as the value of a header."""
        if self._load is None:
            self._load = b"running=%d;waiting=%d;kv=%.2f" % (*self.figures(), self.engine.kv_use)
        return self._load

    def unsent(self) -> bytes:
        """The same on a refusal of a call that the engine has not seen."""
        return self.load() + UNSENT

    def line(self, *, models: bool) -> bytes:
        """The whole state as a line of JSON; the models only where asked for, since they seldom change."""
        engine = self.engine
        running, waiting = self.figures()
        state: dict[str, object] = {
            "phase": engine.phase,
            "for": round(monotonic() - engine.since, 3),
            "ready": self.takes_calls,
            "draining": self.draining or engine.draining,
            "dead": engine.dead,
            "reason": f"engine: {engine.reason}" if engine.reason else "",
            "running": running,
            "waiting": waiting,
            "queued": self.gate.waiting,
            "concurrency": self.gate.config.concurrency,
            "kv_use": engine.kv_use,
            "tokens_per_second": round(engine.tokens_per_second, 1),
            "failures": engine.failures,
            "heartbeat": BEAT,
        }
        if models:
            state["models"] = [
                {"id": model.id, "parent": model.parent, "max_length": model.max_length} for model in engine.models
            ]
        return orjson.dumps(state) + b"\n"

    def unready(self, *, whole: bool = False) -> list[str]:
        """Why no call should come here; the `whole` reason is for operators, what strangers may read is shorter."""
        if self.takes_calls:
            return []
        if self.draining or self.engine.draining:
            return ["the worker is being drained"]
        reason = self.engine.reason if whole or not self._own else ""
        said = _PHASES[self.engine.phase]
        return [f"{said}: {reason}" if reason else said]

    def refusal(self) -> Reject | None:
        """Why a new call is turned away, None where it is not.

        A suspect engine still gets the calls that come: whether to send them elsewhere is for the gateway to say.
        """
        phase = self.engine.phase
        if self.draining or self.engine.draining:
            return _refuse("worker_draining", "The worker takes no new calls: it is being drained.", _SOON)
        if phase is Phase.DEAD:
            return self.gone()
        if phase is Phase.STARTING:
            return _refuse("worker_starting", f"The worker's engine is starting{self._why}.", _LATER)
        if phase is Phase.WARMING:
            return _refuse("worker_starting", "The worker's engine is warming up.", _LATER)
        return None

    def gone(self) -> Reject:
        """The refusal of calls that the engine's death leaves without a chance."""
        what = " and will be started again" if self._own else self._why
        return _refuse("worker_unavailable", f"The worker's engine is gone{what}.", _LATER)

    @property
    def _why(self) -> str:
        """The reason, for clients: what an engine of one's own last wrote may be anything and is not for them."""
        reason = self.engine.reason
        return f": {reason}" if reason and not self._own else ""


def _refuse(code: str, message: str, retry_after: float) -> Reject:
    return Reject(
        503,
        code,
        message,
        retry_after=retry_after,
        whose=Whose.GATEWAY,
        headers=_RETRY_ELSEWHERE,
        kind="unavailable",
    )


def _unheard(_urgent: bool) -> None:
    return
