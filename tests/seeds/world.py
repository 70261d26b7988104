"""A host with some processes, their chains of attempt policies, and calls that come, go and fail."""

from __future__ import annotations

import contextvars
import random
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from racers import Body, Notes
from tailrace.plugins.breaker.board import Board
from tailrace.plugins.breaker.plugin import Breaker
from tailrace.plugins.breaker.settings import Config as BreakerConfig
from tailrace.plugins.fallback import Choice, Fallback
from tailrace.plugins.fallback import Config as FallbackConfig
from tailrace.plugins.hedge import Hedge
from tailrace.plugins.hedge.settings import Config as HedgeConfig
from tailrace.plugins.hedge.settings import FirstToken
from tailrace.plugins.retry import BudgetSettings, Retry
from tailrace.plugins.retry import Config as RetryConfig
from tailrace.plugins.route import Route
from tailrace.proxy.address import Address
from tailrace.proxy.dialects import CHAT
from tailrace.proxy.fault import Failed, Reject, connection_lost, fallen_silent, timed_out
from tailrace.proxy.fleet import ModelEntry, Models, Pool, Worker
from tailrace.proxy.limits import Timeouts
from tailrace.proxy.outcome import AttemptEnd
from tailrace.proxy.pipeline import Link, Pipeline
from tailrace.proxy.plugin import Plugin
from tailrace.proxy.race import Race
from tailrace.proxy.reply import Instead
from tailrace.proxy.stride import Stride

from seeds import engines
from seeds.loop import VirtualLoop

LENGTH = 20.0


class Notary(Plugin[None]):
    """Writes down how often each attempt ended and won."""

    def __init__(self) -> None:
        super().__init__(None)
        self.ends: Counter[int] = Counter()
        self.commits: Counter[str] = Counter()

    def on_commit(self, call: Any, attempt: Any) -> None:
        self.commits[call.id] += 1

    def on_attempt_end(self, call: Any, attempt: Any, end: Any) -> None:
        self.ends[id(attempt)] += 1


class Process:
    """One process of the host: its own workers, connections and plugins."""

    def __init__(self, world: World, seat: int) -> None:
        drawn = world.drawn
        self.world = world
        self.workers: list[Worker] = []
        main, spare = (self._pool(name, world.fleets[name]) for name in ("main", "spare"))
        self.entries = {"m": ModelEntry("m", main, "m"), "small": ModelEntry("small", spare, "small")}
        for entry in self.entries.values():
            entry.pool.attach(entry)
            entry.pool.rebuild()
        self.retry, self.hedge, self.breaker, self.fallback = world.plugins()
        self.notary = Notary()
        chosen = [plugin for plugin in (self.fallback, self.breaker, self.hedge, self.retry) if drawn.random() < 0.8]
        if world.shuffled:
            drawn.shuffle(chosen)
        if self.breaker in chosen:
            self.breaker.panel.now = world.loop.time_ns
            self.breaker.panel.start(Board.open(world.folder))
        self.chosen = chosen
        links = [Link(plugin, type(plugin).__name__) for plugin in (*chosen, self.notary, world.route())]
        self.chain = SimpleNamespace(
            pipeline=Pipeline.of(links),
            timeouts=Timeouts(first_content_base=2.0, first_content_per_mib=0.0),
            hold_unary=1 << 20,
            models=Models(self.entries, {}),
            pools={pool.name: pool for pool in (main, spare)},
            pins=dict.fromkeys(self.workers),
        )
        self.service = SimpleNamespace(plugin_failed=world.broken.append, clock=world.loop.clock)

    def _pool(self, name: str, fleet: list[engines.Engine]) -> Pool:
        workers = [
            Worker(Address.parse(f"http://{each.name}:80"), engines.Pool(self.world.loop, each))  # type: ignore[arg-type]
            for each in fleet
        ]
        pool = Pool(name, workers)
        for worker in workers:
            worker.pools = [pool]
        self.workers += workers
        return pool

    def tick(self) -> None:
        if self.breaker in self.chosen:
            self.breaker.tick()
        now = self.world.loop.time()
        for worker in self.workers:
            for connection in tuple(worker.connections.busy):
                sink = connection.sink
                if sink is not None and sink.race.winner is not sink:
                    sink.on_quiet(now - connection.touched, now)

    def stop(self) -> None:
        if self.breaker in self.chosen:
            self.breaker.panel.stop()


class Played:
    """One call, from its beginning to its one end."""

    def __init__(self, process: Process, number: int) -> None:
        world, drawn = process.world, process.world.drawn
        self.world, self.process = world, process
        self.outcomes: list[str] = []
        self.count = 0
        body = Body({"store": True} if drawn.random() < 0.1 else {})
        self.call: Any = Notes(
            id=f"c{number}",
            chain=process.chain,
            entry=process.entries["m"],
            model="m",
            stream=True,
            size=drawn.choice([100, 100, 5000]),
            pinned=None,
            trail=None,
            harvest=None,
            time=None,
            head=SimpleNamespace(method="POST", get=lambda name: None),
            peer=SimpleNamespace(trusted=False),
            body=body,
            tries=[],
            tried_before=drawn.choice([0, 0, 0, 0, 1, 2]),
            client=SimpleNamespace(loop=world.loop, service=process.service),
            route=SimpleNamespace(
                name="chat", dialect=CHAT, entry=None, pinned=False, expects=b"", anthropic=False, text_answers=False
            ),
        )
        self.call.race = self.race = Race(self.call)

    def begin(self) -> None:
        world, drawn = self.world, self.world.drawn
        self.call.stride = Stride(self._serve(), world.loop, contextvars.copy_context())  # type: ignore[arg-type]
        if drawn.random() < 0.15:
            world.loop.call_later(drawn.expovariate(2.0), self.leave)
        if drawn.random() < 0.1:
            world.loop.call_later(drawn.uniform(0.1, 3.0), self._expire)
        if drawn.random() < 0.2:
            world.loop.call_later(drawn.expovariate(3.0), self._doubt)
        self.call.stride.resume()

    async def _serve(self) -> None:
        try:
            self.race.start()
            winner = await self.race
        except (Failed, Reject) as failed:
            self._end(f"failed {failed.fault.kind}")
        except Instead:
            self._end("degraded")
        else:
            whole = self.world.drawn.random() < 0.9
            self.world.loop.call_later(self.world.drawn.expovariate(1.0), self._relayed, winner, whole)

    def _relayed(self, winner: Any, whole: bool) -> None:
        if self.outcomes:
            return
        if whole:
            winner.connection.rest()
        else:
            winner.fault = connection_lost(sent=True)
        self._end("completed" if whole else "cut", winner, AttemptEnd.WON if whole else AttemptEnd.FAILED)

    def leave(self) -> None:
        if not self.outcomes:
            self._end("left", self.race.winner, AttemptEnd.CANCELLED)

    def _expire(self) -> None:
        if not self.outcomes:
            self.race.expire(timed_out("total", 1.0))

    def _doubt(self) -> None:
        if not self.outcomes and self.call.tries and self.race.winner is None:
            self.race.move(self.world.drawn.choice(self.call.tries), fallen_silent("drawn"))

    def _end(self, outcome: str, winner: Any = None, end: Any = None) -> None:
        self.outcomes.append(outcome)
        self.race.cancel()
        if winner is not None:
            winner.release()
            self.race.finished(winner, end)
        self.count = len(self.call.tries)


class World:
    """What one seed draws: fleets, plugins, calls and mishaps; `run` plays it to its end."""

    def __init__(self, seed: int, folder: Path) -> None:
        random.seed(seed)
        self.drawn = drawn = random.Random(seed)
        self.loop = VirtualLoop()
        self.folder = folder / "breaker"
        self.broken: list[str] = []
        self.shuffled = drawn.random() < 0.5
        self.fleets = {
            "main": [engines.Engine(f"w{number}", drawn) for number in range(drawn.choice([1, 2, 3, 5, 12]))],
            "spare": [engines.Engine(f"s{number}", drawn) for number in range(drawn.choice([1, 2]))],
        }
        self._settings = self._drawn_settings()
        self.processes = [Process(self, seat) for seat in range(drawn.choice([1, 1, 2, 3]))]
        self.calls: list[Played] = []

    def _drawn_settings(self) -> tuple[Any, Any, Any, Any]:
        drawn = self.drawn
        share = drawn.choice([0.0, 0.2, 1.0])
        retry = RetryConfig(
            attempts=drawn.choice([2, 3]),
            back_off=drawn.choice([0.0, 0.025, 0.5]),
            slow=drawn.random() < 0.3,
            budget=BudgetSettings(share=share, per_second=drawn.choice([0.0, 0.2, 10.0])),
        )
        hedge = HedgeConfig(
            race=drawn.random() < 0.8,
            samples=drawn.choice([5, 30]),
            unknown=drawn.choice([0.0, 0.2, 1.0]),
            extra=drawn.choice([0.05, 0.5]),
            first_token_timeout=FirstToken(times=2.0, at_least=0.3) if drawn.random() < 0.4 else None,
        )
        breaker = BreakerConfig(open_for=drawn.choice([0.5, 3.0]), ramp=drawn.choice([0.0, 2.0]), slow_samples=5)
        choices = (Choice(model="small"), Choice(pool="spare"), Choice(message="sorry"))
        fallback = FallbackConfig(to=tuple(drawn.sample(choices, drawn.choice([1, 2, 3]))), after=drawn.choice([1, 2]))
        return retry, hedge, breaker, fallback

    def plugins(self) -> tuple[Retry, Hedge, Breaker, Fallback]:
        retry, hedge, breaker, fallback = self._settings
        return Retry(retry), Hedge(hedge), Breaker(breaker), Fallback(fallback)

    def route(self) -> Route:
        policy = self.drawn.choice(["least_inflight", "random", "round_robin"])
        return Route(Route.Config(policy=policy))

    def run(self, check: Any) -> None:
        """Play, with `check` called after every tick; afterwards nothing may be left."""
        drawn, loop = self.drawn, self.loop
        start = loop.time()
        for number in range(drawn.choice([10, 30, 60])):
            loop.call_later(drawn.uniform(0.0, LENGTH * 0.7), self._arrive, number)
        for _ in range(drawn.choice([0, 3, 8])):
            every = [engine for fleet in self.fleets.values() for engine in fleet]
            loop.call_later(drawn.uniform(0.0, LENGTH), drawn.choice(every).change)
        ticks = 0
        while loop.time() < start + LENGTH or (ticks < 4000 and not all(played.outcomes for played in self.calls)):
            loop.run_until(loop.time() + 0.05)
            for process in self.processes:
                process.tick()
            check(self)
            ticks += 1
        for process in self.processes:
            process.stop()

    def _arrive(self, number: int) -> None:
        played = Played(self.drawn.choice(self.processes), number)
        self.calls.append(played)
        played.begin()
