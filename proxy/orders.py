"""What every process is to serve now: the configuration in force, and the workers an operator has drained."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from tailrace.proxy.configuration import Configuration, restart_needed
from tailrace.proxy.control import Start
from tailrace.proxy.tenure import Tenure


class Orders:
    """The supervisor's word; a process that starts is told all of it, a running one each change."""

    def __init__(self, configuration: Configuration, who: str = "") -> None:
        self.configuration = configuration
        self._who = who
        self.generation = 1
        self.loaded_at = time.time()
        self.last_error: str | None = None
        """Why the last reload was refused; None after one that was not."""
        self.restart_needed_for: list[str] = []
        self.drained: set[str] = set()
        self._at_start = configuration.settings
        self.tenure = Tenure.of(configuration.settings)

    def adopt(self, configuration: Configuration) -> None:
        """A configuration is in force from now on."""
        self.configuration = configuration
        self.generation += 1
        self.loaded_at = time.time()
        self.last_error = None
        self.restart_needed_for = restart_needed(self._at_start, configuration.settings)

    def drain(self, worker: str, *, drained: bool) -> bool:
        """A worker shall have no new calls, or have them again; whether it had none before."""
        before = worker in self.drained
        (self.drained.add if drained else self.drained.discard)(worker)
        return before

    def start(
        self,
        index: int,
        count: int,
        sockets: tuple[int, ...],
        *,
        metrics: int,
        board: int | None,
        births: int,
        found: dict[str, Any],
        host_unready: Sequence[str] = (),
    ) -> Start:
        """What the process in a seat is told first."""
        return Start(
            role=self.configuration.role_name,
            name=self.configuration.name,
            text=self.configuration.text,
            sockets=sockets,
            tenure=self.tenure.plain(),
            index=index,
            count=count,
            generation=self.generation,
            metrics=metrics,
            board=board,
            births=births,
            drained=tuple(sorted(self.drained)),
            host_unready=tuple(host_unready),
            found=found,
            who=self._who or f"{self.configuration.role_name}[{index}]",
        )
