"""An address that a launched engine is about to serve on must be nobody else's."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path
from urllib.parse import urlsplit

from tailrace.worker.engine.command import EngineError


def clear(target: str) -> None:
    """Make sure that nobody serves there, and remove a socket file that an earlier engine left.

    vLLM does neither: it fails on an old socket file, and its health check would be answered by whoever has the port.
    Raises EngineError if the address is taken.
    """
    if target.startswith("unix:"):
        _clear_socket(Path(target.removeprefix("unix:")))
        return
    parts = urlsplit(target)
    assert parts.hostname is not None and parts.port is not None
    family = socket.AF_INET6 if ":" in parts.hostname else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((parts.hostname, parts.port))
        except OSError as error:
            raise EngineError(f"the engine cannot serve on {target}: {error.strerror or error}") from error


def _clear_socket(path: Path) -> None:
    if not path.exists():
        return
    if not path.is_socket():
        raise EngineError(f"the engine's socket would replace a file: {path}")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
            return
        except BlockingIOError:
            # Its queue of connections is full: somebody holds it, well or not.
            pass
        except OSError as error:
            raise EngineError(f"the engine's socket cannot be used: {path}: {error.strerror or error}") from error
    raise EngineError(f"another process serves on the engine's socket {path}")
