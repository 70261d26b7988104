"""Engines that a test launches, and what they tell of themselves."""

import aiohttp
from tailrace.worker.engine.launch import Engine
from tailrace.worker.engine.settings import EngineSettings, StartSettings, VllmSettings, WatchSettings
from tailrace.worker.engine.state import EngineState

START = StartSettings(limit=20.0, grace=0.05, back_off=0.001, back_off_limit=0.002)
WATCH = WatchSettings(poll=0.001, quiet_poll=0.01, health=0.01, models=0.01, timeout=2.0)


def launched(executable: str, model: str, start: StartSettings = START, **settings) -> EngineSettings:
    vllm = VllmSettings(model=model, executable=executable, args={"seed": 1})
    return EngineSettings(vllm=vllm, start=start, watch=settings.pop("watch", WATCH), **settings)


class Told:
    """All the states an engine went through."""

    def __init__(self) -> None:
        self.states: list[EngineState] = []

    def __call__(self, state: EngineState) -> None:
        self.states.append(state)

    def phases(self, *, but: str = "") -> list[str]:
        """The phases in turn. A killed engine may look suspect for a moment before its end is told: leave that out."""
        phases = [state.phase.value for state in self.states if state.phase.value != but]
        return [phase for n, phase in enumerate(phases) if n == 0 or phases[n - 1] != phase]


async def post(it: Engine, path: str) -> None:
    async with (
        aiohttp.ClientSession(connector=aiohttp.UnixConnector(it.target.removeprefix("unix:"))) as session,
        session.post("http://engine" + path) as response,
    ):
        assert response.status == 200
