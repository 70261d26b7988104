"""What stands on an engine's command line: the program, the place where it serves, and its flags."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import orjson

UNIX_PATH_BYTES = 107
"""Longest path that fits a socket address on Linux."""


class EngineError(Exception):
    """An engine that cannot be run as configured; trying again would not help."""


def find_vllm(executable: str, environ: Mapping[str, str]) -> str:
    """The executable's path: on PATH, or beside the Python that runs this. Raises EngineError."""
    search = os.pathsep.join([environ.get("PATH", os.defpath), str(Path(sys.executable).parent)])
    found = shutil.which(executable, path=search)
    if found is None and executable == "vllm":
        raise EngineError("vllm is not installed here: `pip install vllm` beside tailrace, or set `executable`")
    if found is None:
        raise EngineError(f"there is no program {executable!r} here (`pip install vllm` brings vllm)")
    return found


def flags(args: Mapping[str, object]) -> Iterator[str]:
    """Arguments as the command line wants them."""
    for name, value in args.items():
        if value is True:
            yield f"--{name}"
        elif value is False:
            yield f"--no-{name}"
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
