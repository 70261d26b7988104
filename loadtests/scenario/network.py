"""The network that a scenario runs in: a namespace of its own, with hosts behind a bridge that can be cut off.

Whatever is made here goes with the process that made it: nothing outside is touched, and nothing is left behind.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import shutil
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

_CLONE_NEWNET = 0x40000000
_HUB = "10.77.0.1"
BRIDGE = "hub"
T = TypeVar("T")
_libc = ctypes.CDLL(None, use_errno=True)


class NetworkError(Exception):
    """Something about the network could not be had; the message says what."""


def isolate() -> str | None:
    """Move this process into a network namespace of its own; what kept it from that, None if nothing did."""
    if os.geteuid() != 0:
        return "not root"
    if shutil.which("ip") is None:
        return "no `ip` command (iproute2)"
    if _libc.unshare(_CLONE_NEWNET) != 0:
        return f"unshare: {os.strerror(ctypes.get_errno())}"
    _run("ip", "link", "set", "lo", "up")
    return None


def build_bridge() -> None:
    """The switch between this process's own address and the hosts."""
    _run("ip", "link", "add", BRIDGE, "type", "bridge")
    # Of its own: else it would be that of a port, and change with the ports.
    _run("ip", "link", "set", BRIDGE, "address", "02:00:00:00:00:01")
    _run("ip", "addr", "add", f"{_HUB}/24", "dev", BRIDGE)
    _run("ip", "link", "set", BRIDGE, "up")


def remove_bridge() -> None:
    """Undo it: another stage builds its own."""
    with suppress(NetworkError):
        _run("ip", "link", "del", BRIDGE)


@dataclass(slots=True)
class Host:
    """A machine of its own as far as the network goes: an address behind a port of the bridge."""

    number: int
    _holder: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"10.77.0.{10 + self.number}"

    @property
    def port(self) -> str:
        """The bridge's end of its cable."""
        return f"port{self.number}"

    @property
    def prefix(self) -> tuple[str, ...]:
        """What has a command run there."""
        assert self._holder is not None
        return ("nsenter", f"--net=/proc/{self._holder.pid}/ns/net", "--")

    async def inside(self, work: Callable[[], T]) -> T:
        """Do some blocking work there, in a thread of its own: the sockets that it opens belong to the host."""
        assert self._holder is not None
        place = f"/proc/{self._holder.pid}/ns/net"
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def run() -> None:
            with open(place, "rb") as namespace:  # noqa: PTH123 - its number is what is wanted
                _libc.setns(namespace.fileno(), _CLONE_NEWNET)
            try:
                result = work()
            except Exception as error:
                done.get_loop().call_soon_threadsafe(done.set_exception, error)
            else:
                done.get_loop().call_soon_threadsafe(done.set_result, result)

        threading.Thread(target=run, daemon=True).start()
        return await done

    def plug_in(self) -> None:
        """Make the host and its cable."""
        # It ends with the pipe: so with this process, however that ends.
        self._holder = subprocess.Popen(
            ("unshare", "--net", "sh", "-c", "echo up; read forever"), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._holder.stdout is not None
        self._holder.stdout.readline()
        pid = str(self._holder.pid)
        _run("ip", "link", "add", self.port, "type", "veth", "peer", "name", "eth0", "netns", pid)
        _run("ip", "link", "set", self.port, "master", BRIDGE, "up")
        _run(*self.prefix, "ip", "addr", "add", f"{self.address}/24", "dev", "eth0")
        _run(*self.prefix, "ip", "link", "set", "lo", "up")
        _run(*self.prefix, "ip", "link", "set", "eth0", "up")
        self._know_addresses()

    def _know_addresses(self) -> None:
        """Settle both ends' hardware addresses: a silent host must not turn into "no route" once they are forgotten."""
        there = _hardware(_run(*self.prefix, "ip", "-o", "link", "show", "eth0"))
        here = _hardware(_run("ip", "-o", "link", "show", BRIDGE))
        _run("ip", "neigh", "replace", self.address, "lladdr", there, "dev", BRIDGE, "nud", "permanent")
        _run(*self.prefix, "ip", "neigh", "replace", _HUB, "lladdr", here, "dev", "eth0", "nud", "permanent")

    def cut_off(self) -> None:
        """Lose every packet, both ways, without a word to anybody."""
        _run("bridge", "link", "set", "dev", self.port, "state", "0")

    def rejoin(self) -> None:
        """Let packets through again."""
        _run("bridge", "link", "set", "dev", self.port, "state", "3")

    def unplug(self) -> None:
        """Be gone."""
        if self._holder is not None:
            assert self._holder.stdin is not None
            # By name, at once: with its namespace it would go some time later.
            with suppress(NetworkError):
                _run("ip", "link", "del", self.port)
            with suppress(OSError):
                self._holder.stdin.close()
            self._holder.wait()
            self._holder = None


def _hardware(shown: str) -> str:
    """The address in a line of `ip link`."""
    return shown.partition("link/ether ")[2].split()[0]


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise NetworkError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout
