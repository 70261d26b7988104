"""What happens to the fleet and the gateways while the load goes on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

from scenario.gateway import Tailrace
from scenario.network import BRIDGE
from scenario.patience import until
from scenario.plan import Event
from scenario.stage import Stage
from scenario.volley import Act, Volley
from scenario.wiretap import Wiretap
from scenario.worker import AT_ONCE, Worker

LISTEN_S = 10.0
"""How long after it was struck a worker's wire is listened to."""
HEALTH_S = 0.25
"""How often a balancer asks a gateway's health."""
PAUSE_S = 1.0
"""Between one worker, or one gateway, and the next in a rolling change."""


class Happenings:
    """Carries out the events of a play."""

    def __init__(self, stage: Stage, volley: Volley) -> None:
        self._stage = stage
        self._volley = volley
        self._struck: Worker | None = None
        self._turns: dict[str, int] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self.said: list[str] = []

    def book(self) -> None:
        """Have every event happen at its time; call it as the volley begins."""
        for act in self._volley.acts:
            for event in act.phase.events:
                due = self._volley.start + act.start + round(event.after * 1e9)
                self._tasks.append(asyncio.create_task(self._at(due, act, event)))

    async def over(self) -> None:
        """Wait for what still goes on; raises what went wrong."""
        await asyncio.gather(*self._tasks)

    def cancel(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def _at(self, due: int, act: Act, event: Event) -> None:
        await asyncio.sleep(max(0.0, (due - time.monotonic_ns()) / 1e9))
        handler: Callable[[Act, Event], Awaitable[None]] = getattr(self, f"_{event.do}")
        if not act.struck:
            act.struck = time.monotonic_ns()
        await handler(act, event)

    def _tell(self, act: Act, what: str) -> None:
        self.said.append(f"{(time.monotonic_ns() - self._volley.start) / 1e9:7.2f} s  {act.phase.name}: {what}")

    def _worker(self, event: Event) -> Worker:
        """The worker that an event means; of a kind they are struck in turn, the last one first."""
        if event.worker == "same" and self._struck is not None:
            return self._struck
        workers = self._stage.workers
        if isinstance(event.worker, int):
            return workers[event.worker - 1]
        fitting = [w for w in workers if event.worker == "any" or w.with_sidecar == (event.worker == "sidecar")]
        turn = self._turns[event.worker] = self._turns.get(event.worker, 0) + 1
        return fitting[-turn % len(fitting)]

    async def _kill(self, act: Act, event: Event) -> None:
        worker = self._struck = self._worker(event)
        tap = self._tap(worker)
        worker.kill(event.what)
        act.struck = time.monotonic_ns()
        self._tell(act, f"killed {event.what} of worker {worker.name}")
        returning = worker.with_sidecar and event.what != "host"
        watch = asyncio.create_task(until(partial(worker.serves_again, event.what), LISTEN_S)) if returning else None
        await self._listen(act, tap, watch)

    async def _partition(self, act: Act, event: Event) -> None:
        worker = self._struck = self._worker(event)
        tap = self._tap(worker)
        how = worker.cut_off()
        act.struck = time.monotonic_ns()
        self._tell(act, f"cut off worker {worker.name}: {how}")
        await self._listen(act, tap)

    async def _freeze(self, act: Act, event: Event) -> None:
        worker = self._struck = self._worker(event)
        tap = self._tap(worker)
        worker.freeze()
        act.struck = time.monotonic_ns()
        self._tell(act, f"froze worker {worker.name} (SIGSTOP)")
        await self._listen(act, tap)

    def _tap(self, worker: Worker) -> Wiretap | None:
        if not self._stage.may_listen:
            return None
        return Wiretap(BRIDGE if worker.host is not None else "lo", worker.port)

    async def _listen(self, act: Act, tap: Wiretap | None, watch: asyncio.Task[bool] | None = None) -> None:
        """Note when the last request was sent to a worker that was struck, until it is seen to be `watch`ed back."""
        until_then = [time.monotonic_ns() + round(LISTEN_S * 1e9)]
        if watch is not None:
            # Of the question that was answered: what was sent in the same moment was answered, too.
            watch.add_done_callback(lambda _: until_then.append(time.monotonic_ns() - round(AT_ONCE * 1e9)))
        try:
            await asyncio.sleep(LISTEN_S)
        finally:
            if tap is not None:
                tap.close()
            if watch is not None:
                watch.cancel()
        if watch is not None and len(until_then) > 1:
            act.notes["returned_ms"] = (until_then[1] - act.struck) // 1_000_000
        if tap is not None:
            after = [(sent - act.struck) / 1e6 for sent in tap.requests if act.struck < sent < min(until_then)]
            act.notes["last_sent_ms"] = round(max(after, default=0.0), 3)
            act.notes["sent_after"] = len(after)

    async def _start(self, act: Act, event: Event) -> None:
        """Bring the worker back, in the way in which it went."""
        worker = self._worker(Event(after=0, do="start", worker="same") if event.worker == "any" else event)
        worker.rejoin()
        began = time.monotonic_ns()
        await worker.start()
        self._tell(act, f"worker {worker.name} is back")
        act.notes["back_ms"] = await self._until_used(worker, began)

    async def _until_used(self, worker: Worker, began: int) -> float:
        for gateway in self._stage.tailraces:
            await until(partial(gateway.takes_calls, worker.url), pause=0.05)
        return round((time.monotonic_ns() - began) / 1e6, 1)

    async def _fault(self, act: Act, event: Event) -> None:
        worker = self._struck = self._worker(event)
        await worker.fault(event.fault)
        act.struck = time.monotonic_ns()
        self._tell(act, f"worker {worker.name}: {event.fault}")

    async def _heal(self, act: Act, event: Event) -> None:
        worker = self._worker(Event(after=0, do="heal", worker="same") if event.worker == "any" else event)
        await worker.fault({"fail": "none"})
        self._tell(act, f"worker {worker.name}: healed")

    async def _drain(self, act: Act, event: Event) -> None:
        worker = self._struck = self._worker(event)
        await self._replace(act, worker)

    async def _rolling_drain(self, act: Act, event: Event) -> None:
        began = time.monotonic_ns()
        for worker in self._stage.workers[: event.count or None]:
            await self._replace(act, worker)
            await asyncio.sleep(PAUSE_S)
        act.notes["rolled_ms"] = round((time.monotonic_ns() - began) / 1e6)

    async def _replace(self, act: Act, worker: Worker) -> None:
        """Drain a worker, start it anew and use it again: an upgrade. A sidecar drains itself at SIGTERM."""
        began = time.monotonic_ns()
        if not worker.with_sidecar:
            for gateway in self._stage.tailraces:
                await gateway.drain(worker.url, drained=True)
            for gateway in self._stage.tailraces:
                await until(partial(gateway.idle, worker.url), pause=0.05)
        await worker.drain()
        gone = time.monotonic_ns()
        await worker.start()
        if not worker.with_sidecar:
            for gateway in self._stage.tailraces:
                await gateway.drain(worker.url, drained=False)
        ready = await self._until_used(worker, gone)
        act.notes["ready_ms"] = max(act.notes.get("ready_ms", 0.0), ready)
        self._tell(
            act, f"worker {worker.name} drained in {(gone - began) / 1e9:.1f} s, used again after {ready:.0f} ms"
        )

    async def _add(self, act: Act, event: Event) -> None:
        """Start the spare workers and let the gateways know."""
        began = time.monotonic_ns()
        added = self._stage.take_spares()
        taps = {worker: self._tap(worker) for worker in added}
        await asyncio.gather(*(worker.start() for worker in added))
        started = time.monotonic_ns()
        for gateway in self._stage.tailraces:
            await gateway.change([worker.url for worker in self._stage.workers])
        for worker in added:
            await self._until_used(worker, began)
        act.notes["ready_ms"] = round((time.monotonic_ns() - began) / 1e6)
        self._tell(act, f"added {len(added)} workers, up after {(started - began) / 1e9:.1f} s")
        await asyncio.sleep(1.0)
        for tap in filter(None, taps.values()):
            tap.close()
            if tap.requests:
                first = (tap.requests[0] - began) / 1e6
                act.notes["first_request_ms"] = round(max(act.notes.get("first_request_ms", 0.0), first))

    async def _restart_gateways(self, act: Act, event: Event) -> None:
        """Each gateway in turn is ended in good order and started again, while a balancer watches its health."""
        for gateway in self._stage.tailraces:
            began = time.monotonic_ns()
            watch = asyncio.create_task(self._balance(gateway))
            gateway.ask_to_end()
            await gateway.gone(120.0)
            gone = time.monotonic_ns()
            watch.cancel()
            gateway.in_rotation = False
            await gateway.start([worker.url for worker in self._stage.workers])
            gateway.in_rotation = True
            ready = (time.monotonic_ns() - gone) / 1e6
            act.notes["ready_ms"] = round(max(act.notes.get("ready_ms", 0.0), ready))
            self._tell(act, f"a gateway ended in {(gone - began) / 1e9:.1f} s and was ready again after {ready:.0f} ms")
            await asyncio.sleep(PAUSE_S)

    async def _balance(self, gateway: Tailrace) -> None:
        with suppress(asyncio.CancelledError):
            while True:
                gateway.in_rotation = await gateway.healthy()
                await asyncio.sleep(HEALTH_S)
