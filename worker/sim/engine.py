"""The simulated engine behind the wire: its clock, queue, counters, faults and state."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random
from typing import Literal
from zlib import crc32

from tailrace.worker.sim.batches import Batches
from tailrace.worker.sim.beats import Beats
from tailrace.worker.sim.clock import Clock
from tailrace.worker.sim.errors import unknown_model
from tailrace.worker.sim.exchange import Request
from tailrace.worker.sim.failures import Failures, Fault
from tailrace.worker.sim.kept import Kept
from tailrace.worker.sim.metrics import Metrics
from tailrace.worker.sim.profile import load_profile
from tailrace.worker.sim.scheduler import Scheduler
from tailrace.worker.sim.settings import SimSettings, sized
from tailrace.worker.sim.stillness import Stillness

VERSION = "0.32.0"

State = Literal["serving", "draining", "hung", "dead"]


def scheduler_for(settings: SimSettings, clock: Clock, metrics: Metrics, rng: Random) -> Scheduler:
    """The pace that the settings ask for."""
    if settings.profile is None:
        return Beats(settings, clock, metrics, rng)
    return Batches(settings, load_profile(settings.profile), clock, metrics, rng)


class Engine:
    """What the routes share."""

    def __init__(
        self, settings: SimSettings, clock: Clock, incident: Callable[[Fault], None], thaw: Callable[[], None]
    ) -> None:
        settings = self.settings = sized(settings)
        self.clock = clock
        self.incident = incident
        """Makes a fault of the whole server happen."""
        self.thaw = thaw
        """Ends a freeze, if there is one."""
        self.rng = Random(settings.seed)
        self.metrics = Metrics(settings.max_model_len)
        self.scheduler = scheduler_for(settings, clock, self.metrics, self.rng)
        self.failures = Failures(settings.faults, self.rng, self._pace)
        self._pace()
        self.stillness = Stillness(self.failures.deafens)
        self.state: State = "serving"
        self.born = clock.wall()
        self.load = 0
        """Inference requests being answered."""
        self.received: deque[Request] = deque(maxlen=settings.keep_requests)
        self.fingerprint = f"vllm-{VERSION}-{crc32(settings.model.encode()):08x}"
        self.kept = Kept()
        self.adapters = {adapter.name: adapter for adapter in settings.lora_modules}

    def _pace(self) -> None:
        self.scheduler.slow_down(self.failures.slowness)

    @property
    def name(self) -> str:
        """What the model calls itself."""
        return self.settings.names[0]

    def resolve(self, asked: object) -> str:
        """The name under which a requested model answers; a request without one means the model itself."""
        if asked is None or asked in self.settings.names:
            return self.name
        if isinstance(asked, str) and asked in self.adapters:
            return asked
        raise unknown_model(asked, self.settings.names)
