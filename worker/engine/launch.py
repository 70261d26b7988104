"""The engine beside the sidecar, as one context manager."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from tailrace.worker.engine import stragglers
from tailrace.worker.engine.body import Body, Found, Launched
from tailrace.worker.engine.client import EngineClient
from tailrace.worker.engine.command import Command, EngineError, vllm_command
from tailrace.worker.engine.folder import private_folder
from tailrace.worker.engine.lives import Lives
from tailrace.worker.engine.output import OutputRelay
from tailrace.worker.engine.settings import EngineSettings
from tailrace.worker.engine.sim_command import sim_command
from tailrace.worker.engine.state import EngineState, Phase
from tailrace.worker.engine.watch import EngineWatch

log = logging.getLogger(__name__)


class Engine:
    """The engine in use.

    `target` is where the sidecar forwards to, `http://host:port` or `unix:/path`; `api_key` is what the engine wants to
    see there. Both stay the same through restarts.
    """

    def __init__(self, target: str, api_key: str | None, watch: EngineWatch, poll: float) -> None:
        self.target = target
        self.api_key = api_key
        self._watch = watch
        self._poll = poll

    @property
    def state(self) -> EngineState:
        """What is known of it now."""
        return self._watch.state

    def request_sent(self) -> None:
        """Tell that a request went to the engine; `request_over` must follow."""
        self._watch.progress.entered()
        self._watch.stir()

    def bytes_heard(self) -> None:
        """Tell that bytes of an answer came: while streams go on, a late health check is no sign of death."""
        self._watch.progress.made()

    def request_over(self) -> None:
        """Tell that a request ended, however it did."""
        self._watch.progress.left()

    def request_failed(self) -> None:
        """Tell that the engine failed a request: its health is checked at once, or very soon after the last time."""
        self._watch.doubt()

    async def drain(self, limit: float) -> bool:
        """Take no new work from now on; returns True once the engine has none left, False if the limit came first.

        The engine goes on running: it is ended by leaving the context. Dead counts as having nothing left.
        """
        self._watch.change(draining=True)
        began = self._watch.now()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit):
                self._watch.stir()
                while not self._is_empty(began):  # noqa: ASYNC110 - a clock, a count and a figure: no one event
                    await asyncio.sleep(self._poll)
                return True
        return False

    def _is_empty(self, since: float) -> bool:
        state = self._watch.state
        if state.dead:
            return True
        if self._watch.progress.inside or not state.idle:
            return False
        # What was asked before may miss a request that was on its way. Nobody reads, or sends, before it is ready.
        return state.phase in (Phase.STARTING, Phase.WARMING) or self._watch.knows_since(since)


@asynccontextmanager
async def engine(settings: EngineSettings, on_change: Callable[[EngineState], None]) -> AsyncIterator[Engine]:
    """Run, watch and revive the engine while the context is open; nothing of it is left when that closes.

    The context opens at once, with the engine still starting. `on_change` is called on the loop with every new state;
    `Engine.state` has the same. A launched engine that cannot be run as configured raises EngineError here.
    """
    async with contextlib.AsyncExitStack() as stack:
        command: Command | None = None
        if settings.url is None:
            command = _command(settings, stack.enter_context(private_folder()))
            target, api_key = command.target, command.api_key
            await _bury_orphans()
            relay = OutputRelay()
            stack.push_async_callback(relay.close)
            body: Body = Launched(command, settings, relay)
        else:
            target, api_key = settings.url, None
            body = Found(settings)
        if settings.api_key is not None:
            api_key = settings.api_key.reveal()
        client = await stack.enter_async_context(EngineClient(target, api_key, settings.watch.timeout))
        watch = EngineWatch(client, settings.watch, on_change)
        lives = asyncio.ensure_future(Lives(body, client, watch, settings).run())
        try:
            yield Engine(target, api_key, watch, settings.watch.poll)
        finally:
            lives.cancel()
            await asyncio.wait({lives})


def _command(settings: EngineSettings, folder: Path) -> Command:
    if settings.sim is not None:
        return sim_command(settings.sim, folder)
    if settings.vllm is None:
        raise EngineError("engine: give one of vllm, url and sim")
    return vllm_command(settings.vllm, folder)


async def _bury_orphans() -> None:
    killed = await asyncio.get_running_loop().run_in_executor(None, stragglers.kill_orphans)
    if killed:
        log.warning("killed what an earlier sidecar's engine had left: pids %s", ", ".join(map(str, killed)))
