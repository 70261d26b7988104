"""The simulated engine as the sidecar launches it."""

import asyncio
import dataclasses
import sys
from pathlib import Path

import pytest
from engine_doubles import alive
from fakes import until
from tailrace.proxy.config import decode_source, parse
from tailrace.worker.engine.command import EngineError
from tailrace.worker.engine.launch import engine
from tailrace.worker.engine.settings import EngineSettings
from tailrace.worker.engine.sim_command import sim_command
from tailrace.worker.sim.command import settings_from
from tailrace.worker.sim.failures import Fault
from tailrace.worker.sim.settings import Adapter, SimSettings


@pytest.mark.parametrize(
    "settings",
    [
        SimSettings(),
        SimSettings(port=8123, host="::1"),
        SimSettings(uds="/run/s.sock", port=None),
        SimSettings(served_model_names=("a", "b"), lora_modules=(Adapter(name="l", path="/p"),), api_keys=("k", "-j")),
        SimSettings(ttft_ms=1.5, seed=3, num_gpu_blocks=7, enable_server_load_tracking=False, runner="pooling"),
        SimSettings(faults=(Fault(fail="stall", after_tokens=3, count=1), Fault(fail="cut", rst=True, share=0.5))),
        SimSettings(max_num_queued_reqs=4, scheduling_policy="priority", shutdown_timeout=2.0),
        SimSettings(profile="h200-8b", faults=(Fault(fail="wrong_usage", prompt_tokens=-5, for_s=0.5),)),
    ],
)
def test_every_setting_reaches_the_simulation(settings):
    command = sim_command(settings, Path("/f"), {})
    assert command.argv[:3] == (sys.executable, "-m", "tailrace.worker.sim")
    reached = settings_from(command.argv[3:])
    uds = None if settings.port else settings.uds or "/f/engine.sock"
    assert reached == dataclasses.replace(settings, uds=uds, port=settings.port or None)


def test_no_setting_was_forgotten():
    # One that the command line lacks would make the simulation refuse its own settings.
    texts = {"host": "h", "uds": "/u", "model": "m", "runner": "pooling", "scheduling_policy": "priority"}
    texts["text"] = "mixed"
    values = {}
    for field in dataclasses.fields(SimSettings):
        default = getattr(SimSettings(), field.name)
        if field.name in texts:
            values[field.name] = texts[field.name]
        elif isinstance(default, bool):
            values[field.name] = not default
        elif isinstance(default, int | float) or default is None:
            values[field.name] = (default or 0) + 1
    # A profile stands for others of them and is tried above.
    settings = SimSettings(**values | {"keep_requests": 0, "profile": None})
    assert settings_from(sim_command(settings, Path("/f"), {}).argv[3:]) == dataclasses.replace(settings, uds=None)


def test_a_fault_that_the_command_line_cannot_hold_is_refused():
    settings = SimSettings(faults=(Fault(fail="error", message="no, never"),))
    with pytest.raises(EngineError, match="comma"):
        sim_command(settings, Path("/f"), {})


def test_a_simulated_engine_comes_up_and_goes():
    text = "sim: {model: tiny, ttft_ms: 1, itl_ms: 0, api_keys: [k], lora_modules: [{name: l, path: /l}]}"
    settings = decode_source(EngineSettings, parse(text, "worker.yaml", environ={}))

    async def run() -> None:
        async with engine(settings, lambda state: None) as it:
            await until(lambda: it.state.ready)
            assert it.state.warmth.kind == "chat"
            assert [(model.id, model.parent) for model in it.state.models] == [("tiny", None), ("l", "tiny")]
            assert it.api_key == "k"
            pid = it.state.pid
        assert not alive(pid)

    asyncio.run(run())
