"""Where a play runs: its folder, the programs it uses, and the network it has."""

from __future__ import annotations

import socket
import sys
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
_COMPILED = REPOSITORY / ".venv" / "compiled" / "bin" / "tailrace"
MODEL = "sim"
HOP_KEY = "scenario-hop-key-000000"


@dataclass(frozen=True, slots=True)
class Place:
    """`alone`: this process has a network namespace of its own, in which every port is free."""

    folder: Path
    alone: bool
    tailrace: tuple[str, ...]

    def port(self) -> int:
        """A port that nobody uses."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
            return port

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"


def tailrace_command(which: str) -> tuple[str, ...]:
    """The command under test: the wheel's, which is compiled, that of this tree, or one by its path."""
    if which == "source":
        return (sys.executable, "-m", "tailrace.proxy")
    return (str(_COMPILED) if which == "compiled" else which,)
