"""Every wait of the relay and every size that a client may send has a limit: what they are, and why."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

from tailrace.proxy.config import Above, At, AtLeast, Seconds, Size, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Every wait of the relay has a limit; all are kept within a quarter of a second."""

    connect: Annotated[Seconds, Above(0)] = setting(
        default=1.0, help="opening a connection to a worker", why="a dead host must not eat the first-content budget"
    )
    first_content_base: Annotated[Seconds, Above(0)] = setting(
        default=30.0,
        help="waiting for the first content of a stream, for an empty prompt",
        why="covers a full queue in the engine",
    )
    first_content_per_mib: Seconds = setting(
        default=60.0, help="more waiting per MiB of request body", why="prefill time grows with the prompt"
    )
    unary: Annotated[Seconds, Above(0)] = setting(
        default=600.0,
        help="an answer that is no stream, from its request to its end",
        why="an engine says nothing of it before it is whole, and SDKs wait ten minutes",
    )
    gap: Annotated[Seconds, Above(0)] = setting(
        default=60.0, help="silence between two pieces of an answer", why="an engine that hangs on SIGTERM says nothing"
    )
    total: Seconds | None = setting(
        default=None, help="a whole call; none is unlimited", why="a healthy stream may run for an hour"
    )
    client_head: Annotated[Seconds, Above(0)] = setting(
        default=10.0, help="a client's request head", why="slow heads hold connections"
    )
    client_body: Annotated[Seconds, Above(0)] = setting(
        default=30.0, help="silence while a client sends its body", why="mobile uplinks stall"
    )
    client_body_rate: Annotated[Size, AtLeast(1)] = setting(
        default=1024, help="bytes a second that a body must reach on average", why="a drip feed holds memory"
    )
    client_write: Annotated[Seconds, Above(0)] = setting(
        default=60.0, help="a client that takes no bytes", why="a stalled reader holds a GPU slot"
    )
    idle: Annotated[Seconds, Above(0)] = setting(
        default=75.0, help="a client connection without a request", why="longer than common load balancers' 60 s"
    )
    unacknowledged: Annotated[Seconds, Above(0)] = setting(
        default=30.0, help="TCP_USER_TIMEOUT of both sides", why="a vanished host sends no reset"
    )
    upstream_idle: Annotated[Seconds, Above(0)] = setting(
        default=4.0, help="a resting connection to a worker", why="uvicorn closes idle connections after 5 s"
    )
    upstream_age: Annotated[Seconds, Above(0)] = setting(
        default=300.0, help="the life of a connection to a worker", why="names move to other addresses"
    )

    def first_content(self, body_bytes: int) -> float:
        """The limit for the first content of a request with a body of this size."""
        return self.first_content_base + self.first_content_per_mib * (body_bytes / 1048576)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds on what a client may send."""

    body: Annotated[Size, AtLeast(1024)] = setting(
        default=32 << 20, help="a request body, decoded", why="inline images reach 20 MB"
    )
    head: Annotated[Size, AtLeast(1024)] = setting(
        default=64 << 10, help="a request head", why="SSO tokens reach 30 KB"
    )
    target: Annotated[Size, AtLeast(256)] = setting(default=8192, help="a request target", why="common server limit")
    headers: Annotated[int, AtLeast(16)] = setting(default=128, help="headers of a request", why="SDKs send about 20")
    json_depth: Annotated[int, AtLeast(8)] = setting(
        default=128, help="nesting of a JSON body", why="tool schemas rarely pass 20; engines fail near 1,000"
    )
    body_memory: Annotated[Size, AtLeast(1 << 20)] = setting(
        default=1 << 30,
        help="all bodies held at once on this host, each process an equal part (one body at least); 503 above",
        why="of the whole host, each process an equal part: a burst must not end in the OOM killer",
    )
    expansion: Annotated[int, AtLeast(2)] = setting(
        default=200, help="how many times its size a compressed body above 1 MiB may have", why="text rarely passes 20"
    )
    connections: Annotated[int, AtLeast(1)] = setting(
        default=20000,
        help="client connections of one process; above, new ones are closed",
        why="of each process, as is the limit of open files; each costs up to 30 KB",
    )
    connections_per_address: Annotated[int, AtLeast(0)] = setting(
        default=0,
        help="connections of one process from one address that is no trusted proxy; 0 is off",
        why="of each process; a whole company may come from one address",
    )

    def check(self) -> Iterable[At]:
        """A body that could never be held."""
        if self.body > self.body_memory:
            yield At("`body` is above `body_memory`, which all bodies share", "body")
