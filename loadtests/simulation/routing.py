"""The policies of `route` beside one another: three situations, the same arrivals for all."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tailrace.plugins.route import Config

from simulation.clock import VirtualClock
from simulation.door import Door
from simulation.engine import Engine, Profile
from simulation.traffic import Schedule, chats, prompts

POLICIES = ("random", "round_robin", "least_inflight", "tail")
WORKERS = 8
WARM_UP = 0.2
"""Share of the time whose calls are not counted."""


@dataclass(frozen=True)
class Situation:
    """Who asks, what is behind the gateway, and what others send there."""

    schedule: Callable[[int, float], Schedule]
    slower: Callable[[int], float] = lambda number: 1.0
    others: Callable[[int, float], Sequence[tuple[float, int, Schedule]]] | None = None


@dataclass(frozen=True)
class Row:
    """What one policy made of one situation."""

    situation: str
    policy: str
    calls: int
    p50: float
    p99: float
    cached: float


def _bursts(seed: int, seconds: float) -> list[tuple[float, int, Schedule]]:
    """What other gateways send: about every second a burst to some worker, of which this gateway sees nothing."""
    draw = random.Random(seed)
    found, at = [], 0.0
    while at < seconds:
        found.append((at, draw.randrange(WORKERS), prompts(draw.randrange(1 << 30), 50.0, 0.5, median=800.0)))
        at += draw.uniform(0.8, 1.6)
    return found


SITUATIONS = {
    "shared-prefix chat": Situation(lambda seed, seconds: chats(seed, 7.5, seconds)),
    "one slow worker of eight": Situation(
        lambda seed, seconds: prompts(seed, 40.0, seconds), slower=lambda number: 10.0 if number == 3 else 1.0
    ),
    "hidden queues": Situation(lambda seed, seconds: prompts(seed, 30.0, seconds), others=_bursts),
}


def simulate(name: str, policy: str, *, seed: int, seconds: float, **settings: object) -> Row:
    """Run one situation under one policy."""
    situation = SITUATIONS[name]
    random.seed(seed)
    clock = VirtualClock()
    profile = Profile()
    engines = [Engine(clock, replace(profile, slower=situation.slower(number))) for number in range(WORKERS)]
    door = Door(clock, engines, Config(policy=policy, **settings))  # type: ignore[arg-type]
    warm = WARM_UP * seconds
    for at, ask in situation.schedule(seed, seconds):
        clock.after(at, lambda ask=ask, counted=at >= warm: door.ask(ask, counted=counted))
    for at, number, burst in situation.others(seed, seconds) if situation.others else ():
        for later, ask in burst:
            clock.after(at + later, lambda ask=ask, number=number: door.foreign(number, ask))
    clock.run(clock.now + seconds + 120.0)
    seen = door.seen
    # Whoever still waits has waited for so long at least.
    ordered = sorted([*seen.first_content, *(clock.now - began for began in seen.waiting.values())])
    return Row(
        name,
        policy,
        len(ordered),
        ordered[len(ordered) // 2],
        ordered[min(int(len(ordered) * 0.99), len(ordered) - 1)],
        seen.cached_tokens / seen.prompt_tokens,
    )


def table(rows: Sequence[Row]) -> str:
    """As Markdown."""
    lines = [
        "| situation | policy | calls | TTFT p50 ms | TTFT p99 ms | cached % |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| {row.situation} | {row.policy} | {row.calls} | {row.p50 * 1e3:.0f} | {row.p99 * 1e3:.0f} "
        f"| {row.cached * 100:.0f} |"
        for row in rows
    ]
    return "\n".join(lines)
