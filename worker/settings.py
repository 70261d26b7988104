"""What can be written in a worker's YAML: the relay's settings, the engine beside it, and how much it may get to do."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Literal

from tailrace.proxy.config import Above, At, AtLeast, AtMost, Seconds, SecondsOrOff, setting
from tailrace.proxy.listener import split_listen
from tailrace.proxy.listening import Listening
from tailrace.proxy.routes import INFERENCE
from tailrace.proxy.settings import Relay
from tailrace.worker.engine.settings import EngineSettings
from tailrace.worker.registration import RegisterSettings

ENGINE = "engine"
"""The one pool of a sidecar."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker(Relay):
    """A worker's file: the sidecar beside one engine."""

    role: Literal["worker"] = setting(default="worker", help="what this process is")
    processes: Annotated[int, AtLeast(1), AtMost(256)] = setting(
        default=1,
        help="a sidecar is one process",
        why="and no other number: one alone knows what its engine has to do",
    )
    engine: EngineSettings = setting(help="the engine: one to launch, or one to find")
    concurrency: Annotated[int, AtLeast(1)] = setting(
        default=256, help="most calls at the engine at once", why="vLLM's own default of max_num_seqs"
    )
    queue: Annotated[int, AtLeast(0)] = setting(
        default=256, help="most calls that wait for their turn; above, 503", why="an answer too late is worth nothing"
    )
    queue_timeout: Annotated[Seconds, Above(0)] = setting(
        default=10.0, help="how long a call may wait for its turn", why="another replica may still be in time"
    )
    register: RegisterSettings | None = setting(default=None, help="gateways that this sidecar says its address to")
    blocked: tuple[str, ...] = setting(default=(), help="inference paths that are not served, such as /tokenize")
    heartbeat: SecondsOrOff = setting(
        default=0.0,
        help="silence before a stream gets a comment; 0 is off",
        why="the gateway sends heartbeats; here they would hide a silent engine from it and cost errors their status",
    )

    def check_processes(self) -> Iterable[At]:
        """A sidecar is one process."""
        if self.processes != 1:
            yield At("a sidecar is one process, which alone knows what its engine has to do; leave it out", "processes")

    def check_loop(self) -> Iterable[At]:
        """An engine that is this very sidecar."""
        url = self.engine.url
        if url is not None and Listening(listener.address for listener in self.listen).leads_here(url):
            yield At(f"'{url}' is this sidecar's own listener", "engine", "url")

    def check_hop_key(self) -> Iterable[At]:
        """Whoever can be reached by others needs a key."""
        if self.hop_key is None:
            for number, listener in enumerate(self.listen):
                if not _is_local(listener.address):
                    text = f"'{listener.address}' can be reached by others: give the `hop_key` that its gateways hold"
                    yield At(text, "listen", number, "address")

    def check_register(self) -> Iterable[At]:
        """A registration that no gateway would believe, or could do something with."""
        if self.register is None:
            return
        if self.hop_key is None:
            yield At("gateways take only sidecars that hold their `hop_key`: give it", "register")
        if self.register.url is None and not any(_is_place(listener.address) for listener in self.listen):
            yield At("it listens on every address: say with `as` by which one gateways reach it", "register")

    def check_paths(self) -> Iterable[At]:
        """Paths that are not served, or not from here."""
        known = [route.path for route in INFERENCE]
        for number, path in enumerate(self.blocked):
            if path not in known:
                hint = f"write /{path}" if f"/{path}" in known else f"paths: {', '.join(known)}"
                yield At(f"'{path}' is not served anyway; {hint}", "blocked", number)
        for number, route in enumerate(self.routes):
            if route.pool != ENGINE:
                text = f"the pool of {route.path} is '{ENGINE}', a sidecar has no other"
                yield At(text, "routes", number, "pool")


def _is_place(address: str) -> bool:
    """Whether others can reach it by this address as it is written."""
    try:
        host, port = split_listen(address)
    except ValueError:
        return True
    return port < 0 or not ipaddress.ip_address(host).is_unspecified


def _is_local(address: str) -> bool:
    try:
        host, port = split_listen(address)
    except ValueError:
        # Reported by the listener itself.
        return True
    return port < 0 or ipaddress.ip_address(host).is_loopback
