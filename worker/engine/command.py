"""The command line, environment and address of an engine that the sidecar launches."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import orjson
from tailrace.worker.engine.settings import UNIX_PATH_BYTES, VllmSettings

OWN_PREFIX = "TAILRACE_"
"""Environment of the sidecar (hop keys among it) that an engine does not get."""


class EngineError(Exception):
    """An engine that cannot be run as configured; trying again would not help."""


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


def find_vllm(executable: str, environ: Mapping[str, str]) -> str:
    """The executable's path: on PATH, or beside the Python that runs this."""
    search = os.pathsep.join([environ.get("PATH", os.defpath), str(Path(sys.executable).parent)])
    found = shutil.which(executable, path=search)
    if found is None and executable == "vllm":
        raise EngineError("vllm is not installed here: `pip install tailrace[vllm]`, or set engine.vllm.executable")
    if found is None:
        raise EngineError(
            f"engine.vllm.executable: no program {executable!r} (`pip install tailrace[vllm]` brings one)"
        )
    return found


def flags(args: Mapping[str, object]) -> Iterator[str]:
    """Arguments as the command line wants them."""
    for name, value in args.items():
        if value is True:
            yield f"--{name}"
        elif value is False:
            yield f"--no-{name}"
        elif value is None:
            raise EngineError(f"engine.vllm.args.{name}: no value; true gives a bare --{name}")
        elif isinstance(value, list | tuple):
            yield f"--{name}"
            yield from map(_word, value)
        else:
            # As one word: a value may begin with a dash.
            yield f"--{name}={_word(value)}"


def _word(value: object) -> str:
    if isinstance(value, Mapping):
        return orjson.dumps(value).decode()
    return str(value)


def listen(host: str | None, place: object) -> tuple[str, list[str]]:
    """The address that the sidecar reaches and the flags that make the engine serve there.

    With a host `place` is a port, else the path of a Unix socket. Raises EngineError.
    """
    if host is not None:
        if not isinstance(place, int) or isinstance(place, bool) or not 0 < place < 65536:
            raise EngineError(f"the engine's port is not a port: {place!r}")
        reach = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104
        name = f"[{reach}]" if ":" in reach else reach
        return f"http://{name}:{place}", [f"--host={host}", f"--port={place}"]
    path = str(Path(str(place)).absolute())
    if len(path.encode()) > UNIX_PATH_BYTES:
        raise EngineError(f"the engine's socket path is longer than {UNIX_PATH_BYTES} bytes: {path}")
    return f"unix:{path}", [f"--uds={path}"]


def engine_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The sidecar's environment without what is its own."""
    return {name: value for name, value in environ.items() if not name.startswith(OWN_PREFIX)}
