"""The command line, environment and address of an engine that the sidecar launches."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tailrace.worker.engine.arguments import EngineError, find_vllm, flags, listen
from tailrace.worker.engine.settings import VllmSettings

__all__ = ["Command", "EngineError", "engine_environment", "flags", "listen", "vllm_command"]

OWN_PREFIX = "TAILRACE_"
"""Environment of the sidecar (hop keys among it) that an engine does not get."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """What to run, and where it will serve. The environment may hold the engine's key: never log it."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    target: str
    api_key: str | None = None
    grace: float = 0.0
    """Seconds that the engine itself may take to end, by its own flags."""


def vllm_command(settings: VllmSettings, folder: Path, environ: Mapping[str, str] = os.environ) -> Command:
    """The command of a vLLM; `folder` is private to it and takes its socket. Raises EngineError."""
    executable = find_vllm(settings.executable, environ)
    args = {name.replace("_", "-"): value for name, value in settings.args.items()}
    env = engine_environment(environ) | settings.env
    if "host" in args or "port" in args:
        target, place = listen(str(args.pop("host", "127.0.0.1")), args.pop("port", 8000))
    else:
        target, place = listen(None, args.pop("uds", folder / "engine.sock"))
    api_key = args.get("api-key")
    if isinstance(api_key, str):
        # On a command line every user of the host could read it.
        del args["api-key"]
        env["VLLM_API_KEY"] = api_key
    elif isinstance(api_key, list) and api_key:
        api_key = str(api_key[0])
    else:
        api_key = env.get("VLLM_API_KEY") or None
    timeout = args.get("shutdown-timeout")
    return Command(
        argv=(executable, "serve", settings.model, *place, *flags(args)),
        env=env,
        target=target,
        api_key=api_key,
        grace=float(timeout) + 5.0 if isinstance(timeout, int | float) and timeout else 0.0,
    )


def engine_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The sidecar's environment without what is its own."""
    return {name: value for name, value in environ.items() if not name.startswith(OWN_PREFIX)}
