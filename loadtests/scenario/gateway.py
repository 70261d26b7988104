"""The gateway under test: a real `tailrace serve` with the chain of the scenario's file."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import orjson
import yaml

from scenario import http, scrape
from scenario.place import HOP_KEY, MODEL, Place
from scenario.programs import Program, ProgramError

START_LIMIT = 30.0
FIRST = -10
"""The priority of gateways, before the engines that share their machine."""


class Tailrace:
    """One gateway. `in_rotation` is what a balancer that asks its health every now and then thinks of it."""

    name = "tailrace"
    headers: dict[str, str] = {}

    def __init__(self, number: int, place: Place, config: dict[str, Any], *, slots: int, hop: bool) -> None:
        self.at = f"127.0.0.1:{place.port()}"
        self.in_rotation = True
        self._admin = f"127.0.0.1:{place.port()}"
        self._config = config
        self._slots = slots
        self._hop = hop
        self._file = place.folder / f"gateway-{number}.yaml"
        self._state = place.folder / f"state-{number}"
        self._workers: list[str] = []
        command = (*place.tailrace, "serve", str(self._file), "--log-level", "info")
        self._program = Program(f"gateway-{number}", command, place.log(f"gateway-{number}"), nice=FIRST)

    @property
    def pids(self) -> list[int]:
        return self._program.pids

    @property
    def shown(self) -> str:
        """How it is started, for whoever wants to do the same."""
        chain = " > ".join(next(iter(plugin)) for plugin in self._config.get("plugins", ()))
        return f"tailrace serve, chain: {chain}"

    async def start(self, workers: Sequence[str]) -> None:
        """Start it, and wait until every worker takes calls for it."""
        self._write(workers)
        self._program.start()
        await self._program.ready(self.healthy, START_LIMIT)
        await self._program.ready(self._all_take_calls, START_LIMIT)

    async def healthy(self) -> bool:
        return await http.answers(self.at, "/readyz")

    async def change(self, workers: Sequence[str]) -> None:
        """Another list of workers, without a restart."""
        self._write(workers)
        self._program.signal(signal.SIGHUP)

    async def drain(self, worker: str, *, drained: bool) -> None:
        """Take a worker out of service, or bring it back."""
        await http.ask_json(self._admin, f"/admin/workers/{'drain' if drained else 'undrain'}", {"worker": worker})

    async def idle(self, worker: str) -> bool:
        """Whether it has no call under way at a worker."""
        return not any(each["inflight"] for each in await self._list() if each["worker"] == worker)

    async def takes_calls(self, worker: str) -> bool:
        """Whether it would send a worker calls."""
        return any(each["eligible"] for each in await self._list() if each["worker"] == worker)

    async def page(self) -> scrape.Page:
        """Its metrics; nothing where it cannot be asked."""
        with suppress(OSError):
            status, body = await http.ask(self._admin, "/metrics")
            return scrape.parse(body.decode()) if status == 200 else {}
        return {}

    def ask_to_end(self) -> None:
        """SIGTERM."""
        self._program.signal(signal.SIGTERM)

    async def gone(self, seconds: float) -> bool:
        return await self._program.gone(seconds)

    async def stop(self) -> None:
        await self._program.stop()

    async def _list(self) -> list[dict[str, Any]]:
        listed: list[dict[str, Any]] = (await http.ask_json(self._admin, "/admin/workers"))["workers"]
        return listed

    async def _all_take_calls(self) -> bool:
        with suppress(OSError, ProgramError):
            listed = await self._list()
            return len(listed) == len(self._workers) and all(each["eligible"] for each in listed)
        return False

    def _write(self, workers: Sequence[str]) -> None:
        self._workers = list(workers)
        settings: dict[str, Any] = {
            "role": "gateway",
            "listen": {"address": self.at, "trusted_proxies": ["127.0.0.0/8"]},
            "admin": self._admin,
            "state": str(self._state),
            "models": {MODEL: {"pool": "fleet"}},
            "pools": {"fleet": {"workers": self._workers, "concurrency": self._slots}},
        }
        if self._hop:
            settings["hop_key"] = HOP_KEY
        # JSON is YAML; a whole file in one move, or a watcher would read half of it.
        written = yaml.safe_dump(settings | orjson.loads(orjson.dumps(self._config)), sort_keys=False)
        draft = self._file.with_suffix(".draft")
        draft.write_text(written)
        draft.replace(self._file)
