"""How the engines of a fleet are started: simulated ones, or real ones where a vLLM is installed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from scenario.place import MODEL, Place
from scenario.plan import Fleet

VLLM_DIR = Path(os.environ.get("TAILRACE_VLLM_DIR", "/var/tmp/tailrace-vllm"))
_VLLM = VLLM_DIR / "V" / "bin" / "vllm"
_WEIGHTS = VLLM_DIR / "tiny"
_QUIET = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
}
_MARKS = {"sim": (b"tailrace.worker.sim",), "vllm": (b"vllm", b"VLLM")}


def bare(fleet: Fleet, place: Place, address: str, port: int) -> tuple[tuple[str, ...], dict[str, str]]:
    """The command and the environment of an engine without a sidecar."""
    where = (f"--host={address}", f"--port={port}", "--served-model-name", MODEL)
    if fleet.kind == "vllm":
        return (str(_VLLM), "serve", str(_WEIGHTS), *where, *_flags(fleet.engine)), _QUIET
    return (*place.tailrace, "sim", *where, *_flags(fleet.engine)), {}


def launched(fleet: Fleet, port: int) -> dict[str, Any]:
    """What a sidecar's file says of the engine that it launches."""
    if fleet.kind == "vllm":
        flags = {name.replace("_", "-"): value for name, value in fleet.engine.items()}
        args = {"served-model-name": MODEL, "host": "127.0.0.1", "port": port, **flags}
        return {"vllm": {"model": str(_WEIGHTS), "executable": str(_VLLM), "args": args, "env": _QUIET}}
    return {"sim": {"served_model_names": [MODEL], "port": port, **fleet.engine}}


def is_engine(fleet: Fleet, command_line: bytes) -> bool:
    """Whether a process beside a sidecar is part of its engine."""
    return any(mark in command_line for mark in _MARKS[fleet.kind])


def _flags(engine: dict[str, Any]) -> Iterator[str]:
    for name, value in engine.items():
        flag = f"--{name.replace('_', '-')}"
        yield flag if value is True else f"{flag}={value}"
