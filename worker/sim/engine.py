"""The simulated engine behind the wire: its clock, queue, counters, faults and state."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random
from typing import Literal
from zlib import crc32

from tailrace.worker.sim.clock import Clock
from tailrace.worker.sim.errors import unknown_model
from tailrace.worker.sim.exchange import Request
from tailrace.worker.sim.failures import Failures, Fault
from tailrace.worker.sim.kept import Kept
from tailrace.worker.sim.metrics import Metrics
from tailrace.worker.sim.scheduler import Scheduler
from tailrace.worker.sim.settings import SimSettings

VERSION = "0.32.0"

State = Literal["serving", "draining", "hung", "dead"]


class Engine:
    """What the routes share."""

    def __init__(self, settings: SimSettings, clock: Clock, incident: Callable[[Fault], None]) -> None:
        self.settings = settings
        self.clock = clock
        self.incident = incident
        """Makes a fault of the whole server happen."""
        self.rng = Random(settings.seed)
        self.metrics = Metrics(settings.max_model_len)
        self.scheduler = Scheduler(settings, clock, self.metrics, self.rng)
        self.failures = Failures(settings.faults, self.rng)
        self.state: State = "serving"
        self.born = clock.wall()
        self.load = 0
        """Inference requests being answered."""
        self.received: deque[Request] = deque(maxlen=settings.keep_requests)
        self.fingerprint = f"vllm-{VERSION}-{crc32(settings.model.encode()):08x}"
        self.kept = Kept()
        self.adapters = {adapter.name: adapter for adapter in settings.lora_modules}

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
