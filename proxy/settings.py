"""What can be written in a gateway's or worker's YAML about the relay itself. Defaults stand here and nowhere else."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from tailrace.proxy.address import Address, AddressError
from tailrace.proxy.config import Above, AtLeast, AtMost, NotEmpty, OrAlone, Seconds, Secret, Size, setting
from tailrace.proxy.entry import PluginEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Every wait of the relay has a limit; all are kept within a quarter of a second."""

    connect: Annotated[Seconds, Above(0)] = setting(
        default=1.0, help="opening a connection to a worker", why="a dead host must not eat the first-content budget"
    )
    first_content_base: Annotated[Seconds, Above(0)] = setting(
        default=30.0, help="waiting for the first content, for an empty prompt", why="covers a full queue in the engine"
    )
    first_content_per_mib: Seconds = setting(
        default=60.0, help="more waiting per MiB of request body", why="prefill time grows with the prompt"
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
        help="all bodies held at once by one process; 503 above",
        why="a burst must not end in the OOM killer",
    )
    connections: Annotated[int, AtLeast(1)] = setting(
        default=20000,
        help="client connections of one process; above, new ones are closed",
        why="each costs up to 30 KB",
    )
    connections_per_address: Annotated[int, AtLeast(0)] = setting(
        default=0,
        help="client connections from one address that is no trusted proxy; 0 is off",
        why="a whole company may come from one address",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTls:
    """Certificate of a listener; the files are read again when they change."""

    cert: Path = setting(help="PEM certificate chain")
    key: Path = setting(help="PEM private key")
    client_ca: Path | None = setting(default=None, help="PEM bundle; when set, clients must present a certificate")


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """One listening address: HOST:PORT, [IPv6]:PORT or unix:/PATH."""

    shorthand: ClassVar[str] = "address"

    address: str = setting(help="HOST:PORT, [IPv6]:PORT or unix:/absolute/path")
    tls: ServerTls | None = setting(default=None, help="serve HTTPS")
    proxy_protocol: bool = setting(default=False, help="expect a PROXY header (v1 or v2) first on every connection")
    trusted_proxies: tuple[str, ...] = setting(
        default=(), help='networks whose forwarded headers are believed; "unix" for peers on a Unix socket'
    )

    def check(self) -> Iterable[str]:
        """Faults of the address and the networks."""
        try:
            split_listen(self.address)
        except ValueError as error:
            yield str(error)
        for network in self.trusted_proxies:
            if network == "unix":
                continue
            try:
                ipaddress.ip_network(network)
            except ValueError:
                yield f"trusted_proxies: '{network}' is no network; write 10.0.0.0/8, fd00::/8 or unix"


def split_listen(address: str) -> tuple[str, int]:
    """Host and port of a listening address, ("/path", -1) for a Unix socket; raises ValueError."""
    if address.startswith("unix:"):
        path = address.removeprefix("unix:")
        if not path.startswith("/"):
            raise ValueError(f"'{address}': a Unix socket is written unix:/absolute/path")
        return path, -1
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"'{address}': expected HOST:PORT, such as 127.0.0.1:8080 or [::]:8080")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"'{address}': an IPv6 address is written in brackets, such as [::1]:8080")
    try:
        ipaddress.ip_address(host)
    except ValueError:
        if host != "localhost":
            raise ValueError(f"'{address}': the host must be an IP address or localhost") from None
        host = "127.0.0.1"
    return host, int(port)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientTls:
    """How workers are verified, and what is shown to them (mTLS)."""

    ca: Path | None = setting(
        default=None, help="PEM bundle that signs the workers' certificates; system roots otherwise"
    )
    cert: Path | None = setting(default=None, help="PEM client certificate")
    key: Path | None = setting(default=None, help="PEM key of the client certificate")

    def check(self) -> Iterable[str]:
        """A certificate needs its key."""
        if (self.cert is None) != (self.key is None):
            yield "cert and key go together: give both or neither"


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSettings:
    """Workers that serve the same models."""

    workers: Annotated[tuple[str, ...], NotEmpty()] = setting(
        help="sidecars or bare engines: http://HOST:PORT, https://HOST:PORT or unix:/PATH"
    )
    tls: ClientTls | None = setting(default=None, help="for https workers")
    api_key: Secret | None = setting(default=None, help="sent to the workers as Authorization: Bearer")

    def check(self) -> Iterable[str]:
        """Faults of the URLs."""
        yield from worker_faults(self.workers)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """One model name that clients may use."""

    pool: str | None = setting(default=None, help="a name under `pools`")
    workers: tuple[str, ...] = setting(default=(), help="or the workers themselves")
    served_as: str | None = setting(default=None, key="as", help="the name the workers know the model by")
    lora: str | None = setting(default=None, help="an adapter; only workers that list it are asked")
    rename: bool = setting(default=False, help="answers carry the client's name in place of the workers'")

    def check(self) -> Iterable[str]:
        """Exactly one source of workers."""
        if (self.pool is None) == (not self.workers):
            yield "give either `pool` (a name under `pools`) or `workers` (a list of URLs)"
        if self.served_as is not None and self.lora is not None:
            yield "`as` and `lora` both name what the workers serve: give one"
        yield from worker_faults(self.workers)


@dataclass(frozen=True, slots=True, kw_only=True)
class PassThrough:
    """A further path that is forwarded as it is; a path ending in * takes everything below."""

    path: str = setting(help="/path or /path/*")
    pool: str = setting(help="a name under `pools`")
    methods: tuple[str, ...] = setting(default=("POST",), help="methods that are forwarded")

    def check(self) -> Iterable[str]:
        """Faults of the path."""
        if not self.path.startswith("/") or "*" in self.path[:-1]:
            yield f"'{self.path}': expected /path or /path/*"


@dataclass(frozen=True, slots=True, kw_only=True)
class Compression:
    """Answers compressed for clients that ask for it."""

    codings: tuple[Literal["zstd", "gzip"], ...] = setting(default=("zstd", "gzip"), help="what is offered; [] is off")
    at_least: Size = setting(default=1024, help="smaller whole answers stay as they are", why="headers cost more")
    streams: bool = setting(
        default=False,
        help="streams too, each event flushed",
        why="SDKs ask for gzip on every call; on a token stream it costs more CPU than it saves bytes",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Admin:
    """The admin port: health, metrics, workers and configuration."""

    shorthand: ClassVar[str] = "address"

    address: str = setting(default="127.0.0.1:9090", help="HOST:PORT; off switches it off")
    token: Secret | None = setting(default=None, help="required as a bearer token; needed off loopback")

    def check(self) -> Iterable[str]:
        """An admin port that others can reach needs a token."""
        if self.address == "off":
            return
        try:
            host, _ = split_listen(self.address)
        except ValueError as error:
            yield str(error)
            return
        if host.startswith("/") or ipaddress.ip_address(host).is_loopback:
            return
        if self.token is None:
            yield f"'{self.address}' can be reached by others: give a `token`, or listen on 127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Relay:
    """What gateways and sidecars have in common."""

    listen: Annotated[tuple[Listener, ...], NotEmpty(), OrAlone()] = setting(
        help="where clients connect; one or a list"
    )
    processes: Annotated[int, AtLeast(1), AtMost(256)] = setting(
        default=1, help="worker processes on the same sockets", why="one process fills one core"
    )
    plugins: tuple[PluginEntry, ...] = setting(default=(), help="the chain, in order")
    timeouts: Timeouts = setting(default_factory=Timeouts, help="every wait has a limit")
    limits: Limits = setting(default_factory=Limits, help="bounds on what clients may send")
    heartbeat: Seconds = setting(
        default=3.0, help="silence before a stream gets a comment; 0 is off", why="balancers cut silent connections"
    )
    admin: Admin = setting(default_factory=Admin, help="the admin port")
    pre_stop: Seconds = setting(
        default=5.0, help="after SIGTERM, connections are still accepted for this long", why="balancers learn late"
    )
    drain: Seconds = setting(default=600.0, help="after that, running streams may take this long", why="long answers")
    hop_key: Secret | None = setting(default=None, help="shared by gateways and sidecars; sidecars require it")
    compression: Compression = setting(default_factory=Compression, help="compressed answers")
    forward_headers: tuple[str, ...] = setting(
        default=(), help="credential headers of clients that workers get", why="credentials stay here"
    )
    routes: tuple[PassThrough, ...] = setting(default=(), help="further paths that are forwarded as they are")


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway(Relay):
    """A gateway's file."""

    role: Literal["gateway"] = setting(default="gateway", help="what this process is")
    models: Annotated[dict[str, ModelSettings], NotEmpty()] = setting(help="model names that clients may use")
    pools: dict[str, PoolSettings] = setting(default_factory=dict, help="named groups of workers")
    default_model: str | None = setting(default=None, help="for requests that name none")
    stale: Annotated[Seconds, Above(0)] = setting(
        default=2.0, help="a worker's load that is older than this is unknown", why="sidecars say it every half second"
    )

    def check(self) -> Iterable[str]:
        """Names that must exist."""
        for name, model in self.models.items():
            if model.pool is not None and model.pool not in self.pools:
                known = ", ".join(self.pools) or "none"
                yield f"models.{name}: there is no pool '{model.pool}'; pools: {known}"
        for route in self.routes:
            if route.pool not in self.pools:
                yield f"routes: there is no pool '{route.pool}' for {route.path}"
        if self.default_model is not None and self.default_model not in self.models:
            yield f"default_model: there is no model '{self.default_model}'"


def worker_faults(urls: Iterable[str]) -> Iterable[str]:
    """What is wrong with each worker URL."""
    seen: set[str] = set()
    for url in urls:
        try:
            shown = Address.parse(url).shown
        except AddressError as error:
            yield str(error)
            continue
        if shown in seen:
            yield f"'{url}' is listed twice ({shown})"
        seen.add(shown)
