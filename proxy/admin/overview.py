"""What the admin port shows and changes: the answers of all processes put together."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from tailrace.proxy.address import Address, AddressError
from tailrace.proxy.config import render
from tailrace.proxy.control import Refused
from tailrace.proxy.crew import Crew
from tailrace.proxy.host import Host
from tailrace.proxy.metrics.exemplars import Exemplar, Place, latest
from tailrace.proxy.orders import Orders
from tailrace.proxy.trace.plain import summary, whole
from tailrace.proxy.trace.told import MOST, Of, Record, ordered

log = logging.getLogger("tailrace")


class Overview:
    """All processes seen as one."""

    def __init__(self, orders: Orders, crew: Crew, host: Host, leases: Callable[[], dict[str, float]]) -> None:
        """`leases` gives how many seconds each registered worker's lease still runs."""
        self._orders = orders
        self._leases = leases
        self._host = host
        self._crew = crew
        self.ending = False
        """The supervisor was told to stop."""

    async def readiness(self) -> dict[str, Any]:
        """Whether new traffic should come here; one process that is ready is enough."""
        answers = await self._statuses()
        reasons: list[str] = []
        if self.ending:
            reasons.append("shutting down")
        elif not answers:
            reasons.append("no process is serving")
        elif all(answer["unready"] for answer in answers):
            reasons.extend(sorted({reason for answer in answers for reason in answer["unready"]}))
        reasons.extend(self._host.unready())
        return {
            "status": "unready" if reasons else "ready",
            "reasons": reasons,
            "processes": {"serving": len(answers), "wanted": self._crew.seats},
            "running_calls": sum(answer["active"] for answer in answers),
        }

    async def _statuses(self) -> list[dict[str, Any]]:
        return [answer for answer in (await self._crew.ask("status")).values() if isinstance(answer, dict)]

    async def workers(self) -> list[dict[str, Any]]:
        """Each worker once: running calls added up, eligible or drained where it is in all processes."""
        merged: dict[str, dict[str, Any]] = {}
        for answer in (await self._crew.ask("workers")).values():
            if isinstance(answer, BaseException):
                continue
            for worker in answer:
                known = merged.setdefault(worker["worker"], worker)
                if known is not worker:
                    known["inflight"] += worker["inflight"]
                    known["eligible"] &= worker["eligible"]
                    known["gets_calls"] &= worker["gets_calls"]
                    known["drained"] &= worker["drained"]
                    known["barred"] |= worker["barred"]
                    known["bars"] = sorted({*known["bars"], *worker["bars"]})
        leases = self._leases()
        for name, worker in merged.items():
            worker["lease"] = round(leases[name], 1) if name in leases else None
        return sorted(merged.values(), key=lambda worker: (worker["pools"], worker["worker"]))

    async def call(self, name: str) -> dict[str, Any]:
        """What is remembered of a request or a trace by its id, the earliest first; of many calls the last ones."""
        found, silent = await self._records(name=name)
        found.sort(key=lambda each: each[0].started)
        return {"calls": [whole(*each) for each in found[-MOST:]], "silent": silent}

    async def calls(self, of: Of, limit: int) -> dict[str, Any]:
        """The first calls in some order."""
        found, silent = await self._records(of=of, count=limit)
        found.sort(key=lambda each: ordered(each[0], of), reverse=True)
        return {"calls": [summary(*each) for each in found[:limit]], "silent": silent}

    async def exemplars(self) -> dict[Place, Exemplar]:
        """Which traces the last observations of distributions belong to."""
        answers = (await self._crew.ask("exemplars")).values()
        return latest([answer for answer in answers if isinstance(answer, list)])

    async def _records(self, **asked: Any) -> tuple[list[tuple[Record, int, int]], list[int]]:
        """Records, each with its clock's offset and its process, and the processes that did not answer."""
        answers = await self._crew.ask("traces", **asked)
        found = [
            (Record.of(raw), answer["offset_ns"], seat)
            for seat, answer in answers.items()
            if isinstance(answer, dict)
            for raw in answer["records"]
        ]
        return found, [seat for seat, answer in answers.items() if not isinstance(answer, dict)]

    async def plugin(self, name: str, question: str, fields: dict[str, Any]) -> list[list[Any]]:
        """What the plugins of a name answer in each process, none where there are none; raises Refused."""
        answers = (await self._crew.ask("plugin", name=name, question=question, fields=fields)).values()
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer if isinstance(answer, Refused) else Refused("a process has just ended: ask again")
        return [answer for answer in answers if answer]

    async def set_drained(self, url: str, *, drained: bool, limit: float | None = None) -> str | None:
        """Let a worker have no new calls, or have them again, in all processes; its name, None where nobody knows it.

        It outlives processes and reloads, not the supervisor. Running calls get `limit` seconds, or all that they need.
        """
        try:
            name = Address.parse(url).shown
        except AddressError:
            return None
        # Before they are asked: a process that is starting now hears of it as the supervisor's word.
        before = self._orders.drain(name, drained=drained)
        answers = await self._crew.ask("set_drained", worker=name, drained=drained, within=limit)
        if not any(answer is True for answer in answers.values()):
            self._orders.drain(name, drained=before)
            return None
        log.info("worker %s %s, by the admin port", name, "gets no new calls" if drained else "may get calls again")
        return name

    async def configuration(self) -> dict[str, Any]:
        """The configuration in force, every default filled in and every secret masked."""
        orders = self._orders
        certificates = {fault for answer in await self._statuses() for fault in answer["certificates"]}
        return {
            "file": orders.configuration.name,
            "generation": orders.generation,
            "loaded_at": orders.loaded_at,
            "last_error": orders.last_error,
            "certificate_error": "\n".join(sorted(certificates)) or None,
            "restart_needed_for": orders.restart_needed_for,
            "yaml": render(orders.configuration.settings),
        }
