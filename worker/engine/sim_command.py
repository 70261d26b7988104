"""The command line of a simulated engine that the sidecar launches."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from tailrace.worker.engine.command import Command, EngineError, engine_environment, listen
from tailrace.worker.sim.failures import Fault
from tailrace.worker.sim.settings import SimSettings

_DEFAULT = SimSettings()
_PLACE = ("host", "port", "uds", "keep_requests")
_NAMES = {"num_gpu_blocks": "num-gpu-blocks-override", "served_model_names": "served-model-name"}


def sim_command(settings: SimSettings, folder: Path, environ: Mapping[str, str] = os.environ) -> Command:
    """The command of a simulated engine; without a port of its own it serves on a socket in `folder`."""
    if settings.port:
        target, place = listen(settings.host, settings.port)
    else:
        target, place = listen(None, settings.uds or folder / "engine.sock")
        place.append("--port=-1")
    return Command(
        argv=(sys.executable, "-m", "tailrace.worker.sim", *place, *_words(settings)),
        env=engine_environment(environ),
        target=target,
        api_key=settings.api_keys[0] if settings.api_keys else None,
        grace=settings.shutdown_timeout + 5.0 if settings.shutdown_timeout else 0.0,
    )


def _words(settings: SimSettings) -> Iterator[str]:
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        flag = _NAMES.get(field.name, field.name.replace("_", "-"))
        if field.name in _PLACE or value == getattr(_DEFAULT, field.name):
            continue
        match value:
            case bool():
                yield f"--{'' if value else 'no-'}{flag}"
            case tuple() if field.name == "faults":
                yield from (f"--fail={_fault(fault)}" for fault in value)
            case tuple() if field.name == "api_keys":
                yield from (f"--api-key={key}" for key in value)
            case tuple() if field.name == "lora_modules":
                yield from (f"--{flag}", *(f"{adapter.name}={adapter.path}" for adapter in value))
            case tuple():
                yield from (f"--{flag}", *value)
            case _:
                yield f"--{flag}={value}"


def _fault(fault: Fault) -> str:
    pairs = []
    for field in dataclasses.fields(fault):
        value = getattr(fault, field.name)
        if field.name == "fail" or value == field.default:
            continue
        if "," in str(value):
            raise EngineError(f"engine.sim.faults: {field.name} cannot hold a comma: {value!r}")
        pairs.append(f"{field.name}={str(value).lower() if isinstance(value, bool) else value}")
    return ":".join(filter(None, (fault.fail, ",".join(pairs))))
