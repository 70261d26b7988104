"""How busy the machine was, and with whose work: a figure that was taken on a busy one says little."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rig.processes import cpu_seconds

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Use:
    """Shares of the whole machine: in all, and by each of those that were asked for."""

    busy: float
    parts: dict[str, float]

    @property
    def own(self) -> float:
        """What those took that were asked for."""
        return sum(self.parts.values())

    @property
    def told(self) -> str:
        """In words."""
        parts = ", ".join(f"{part} {share:.0%}" for part, share in self.parts.items())
        return f"{self.busy:.0%} busy ({parts}, others {self.foreign:.0%})"

    @property
    def foreign(self) -> float:
        """What went to others, and to the kernel on nobody's account."""
        return max(0.0, self.busy - self.own)


class Meter:
    """Sums up over the stretches between `begin` and `end`."""

    def __init__(self, parts: Mapping[str, Callable[[], Sequence[int]]]) -> None:
        self._parts = parts
        self._seconds = self._busy = 0.0
        self._used = dict.fromkeys(parts, 0.0)
        self._started: tuple[float, float, dict[str, dict[int, float]]] | None = None

    def begin(self) -> None:
        """From now on."""
        clocks = {name: {pid: cpu_seconds([pid]) for pid in pids()} for name, pids in self._parts.items()}
        self._started = (time.monotonic(), _busy_seconds(), clocks)

    def end(self) -> None:
        """Until now; what ended meanwhile counts as foreign."""
        if self._started is None:
            return
        began, busy, clocks = self._started
        self._started = None
        self._seconds += time.monotonic() - began
        self._busy += _busy_seconds() - busy
        for name, pids in self._parts.items():
            for pid in pids():
                self._used[name] += max(0.0, cpu_seconds([pid]) - clocks[name].get(pid, 0.0))

    @property
    def use(self) -> Use:
        whole = max(self._seconds, 1e-9) * (os.cpu_count() or 1)
        return Use(self._busy / whole, {name: seconds / whole for name, seconds in self._used.items()})


def _busy_seconds() -> float:
    """Of all cores since boot; what a virtual machine's host gave to others is as lost as what was used."""
    user, nice, system, _, _, irq, softirq, steal = map(int, Path("/proc/stat").read_text().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / _TICKS
