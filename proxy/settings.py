"""What a gateway's or worker's YAML says about the relay itself; `limits.py` and `listener.py` have the rest."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from tailrace.proxy.client_tls import ClientTls
from tailrace.proxy.config import (
    Above,
    At,
    AtLeast,
    AtMost,
    NotEmpty,
    OrAlone,
    Seconds,
    SecondsOrOff,
    Secret,
    Size,
    setting,
)
from tailrace.proxy.discovery.carrying import CONCURRENCY, carrying_faults
from tailrace.proxy.discovery.settings import WorkerEntry, repeated, urls
from tailrace.proxy.doubles import doubles
from tailrace.proxy.elsewhere import unknown_pools
from tailrace.proxy.entry import PluginEntry
from tailrace.proxy.ground import folder_fault, own_folder
from tailrace.proxy.headers import CREDENTIAL, PASS, request_rule
from tailrace.proxy.hop import SHORTEST
from tailrace.proxy.limits import Limits, Timeouts
from tailrace.proxy.listener import Listener, place_faults, split_listen
from tailrace.proxy.listening import Listening, clashes
from tailrace.proxy.named import no_model, unknown_names
from tailrace.proxy.pass_through import PassThrough, twice
from tailrace.proxy.plugin import Plugin
from tailrace.proxy.trace.settings import Traces

_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_OTHER_FOLDER = "name one that this user may write in `state`, or with systemd's `StateDirectory=tailrace`"
_OTHER_WORDS_FOR_OFF = ("false", "False", "no", "none", "0", "disabled")


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSettings:
    """Workers that serve the same models."""

    workers: Annotated[tuple[WorkerEntry, ...], NotEmpty()] = setting(
        help="URLs of sidecars or bare engines, and where further ones are to be found"
    )
    tls: ClientTls | None = setting(default=None, help="for https workers")
    api_key: Secret | None = setting(default=None, help="sent to the workers as Authorization: Bearer")
    peak: Annotated[int, AtLeast(1)] | None = setting(
        default=None,
        help="most calls at once that are expected of it; what could not carry them without one worker is told",
    )
    concurrency: Annotated[int, AtLeast(1)] = setting(
        default=CONCURRENCY,
        help="calls at once that each worker carries that does not say so itself",
        why="a sidecar's own default and vLLM's; `peak` is counted with it, `route: tail` expects further calls to "
        "wait, and nothing is limited by it: `admission` does that",
    )

    def check(self) -> Iterable[At]:
        """Workers that stand twice, and a peak that not even all of them carry."""
        yield from repeated(self.workers)
        yield from carrying_faults(self.workers, self.peak, self.concurrency)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """One model name that clients may use."""

    pool: str | None = setting(default=None, help="a name under `pools`")
    workers: tuple[WorkerEntry, ...] = setting(default=(), help="or the workers themselves")
    served_as: Annotated[str, NotEmpty()] | None = setting(
        default=None, key="as", help="the name the workers know the model by"
    )
    lora: Annotated[str, NotEmpty()] | None = setting(
        default=None, help="an adapter of that model; only workers that list it are asked"
    )
    rename: bool = setting(default=False, help="answers carry the client's name in place of the workers'")

    def check(self) -> Iterable[str | At]:
        """Exactly one source of workers."""
        if (self.pool is None) == (not self.workers):
            yield "give either `pool` (a name under `pools`) or `workers` (a list of URLs)"
        yield from repeated(self.workers)


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

    def check(self) -> Iterable[At]:
        """An admin port that others can reach needs a token."""
        if self.address == "off":
            return
        if self.address in _OTHER_WORDS_FOR_OFF:
            yield At(f"'{self.address}': write `off` for no admin port", "address")
            return
        try:
            host, _ = split_listen(self.address)
        except ValueError as error:
            yield At(str(error), "address")
            return
        if host.startswith("/") or ipaddress.ip_address(host).is_loopback:
            return
        if self.token is None:
            yield At(f"'{self.address}' can be reached by others: give a `token`, or listen on 127.0.0.1", "address")

    def look(self) -> Iterable[At]:
        """A Unix socket needs a folder to stand in."""
        yield from place_faults(self.address)


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
    heartbeat: SecondsOrOff = setting(
        default=3.0, help="silence before a stream gets a comment; 0 is off", why="balancers cut silent connections"
    )
    admin: Admin = setting(default_factory=Admin, help="the admin port")
    pre_stop: Seconds = setting(
        default=5.0, help="after SIGTERM, connections are still accepted for this long", why="balancers learn late"
    )
    state: Path | None = setting(
        default=None,
        help="folder for what must outlive a restart, each supervisor its own; made when a plugin needs it. "
        "Without it, systemd's `StateDirectory`, else ~/.local/state/tailrace",
    )
    drain: Seconds = setting(default=600.0, help="after that, running streams may take this long", why="long answers")
    hop_key: Secret | None = setting(
        default=None, help="shared by gateways and sidecars, which require it off loopback; 16 characters or more"
    )
    compression: Compression = setting(default_factory=Compression, help="compressed answers")
    traces: Traces = setting(default_factory=Traces, help="what `tailrace trace` can show of the last calls")
    forward_headers: tuple[str, ...] = setting(
        default=(),
        help="credential headers and query parameters of clients that workers get",
        why="credentials stay here",
    )
    routes: tuple[PassThrough, ...] = setting(default=(), help="further paths that are forwarded as they are")

    def check_addresses(self) -> Iterable[At]:
        """Addresses that cannot be had at once."""
        yield from clashes([listener.address for listener in self.listen], self.admin.address)

    def check_length_of_hop_key(self) -> Iterable[At]:
        """A key that cannot be guessed."""
        if self.hop_key is not None and len(self.hop_key.reveal()) < SHORTEST:
            yield At(
                f"give at least {SHORTEST} characters: whoever reads one request on its way could guess a shorter key",
                "hop_key",
                bare=True,
            )

    def look(self) -> Iterable[At]:
        """A state folder that plugins need and cannot have."""
        for entry in self.plugins:
            if entry.plugin.host_part is not Plugin.host_part and entry.plugin.keeps_files:
                folder = state_folder(self)
                if fault := folder_fault(folder):
                    yield At(f"plugin '{entry.name}' keeps files in {folder}, but {fault}; {_OTHER_FOLDER}", "state")
                return

    def check_forwarded(self) -> Iterable[At]:
        """Names that nothing can have, and headers that never go on, whoever wants it."""
        for number, name in enumerate(self.forward_headers):
            if not _NAME.fullmatch(name):
                yield At(f"'{name}' cannot be the name of a header or a query parameter", "forward_headers", number)
            elif request_rule(name.encode(errors="replace")) not in (CREDENTIAL, PASS):
                text = f"'{name}' is about one connection, or the relay's own to say: it cannot be forwarded"
                yield At(text, "forward_headers", number)

    def check_doubles(self) -> Iterable[At]:
        """Plugins that would give a call something twice, and take it back once."""
        yield from doubles(self.plugins)

    def check_routes_twice(self) -> Iterable[At]:
        """Further paths that would never be reached."""
        yield from twice(self.routes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway(Relay):
    """A gateway's file."""

    role: Literal["gateway"] = setting(default="gateway", help="what this process is")
    models: Annotated[dict[Annotated[str, NotEmpty()], ModelSettings], NotEmpty()] = setting(
        help="model names that clients may use"
    )
    pools: dict[str, PoolSettings] = setting(default_factory=dict, help="named groups of workers")
    default_model: str | None = setting(default=None, help="for requests that name none")
    stale: Annotated[Seconds, Above(0.5)] = setting(
        default=2.0, help="a worker's load that is older than this is unknown", why="sidecars say it every half second"
    )
    suspect_after: Annotated[Seconds, AtLeast(0.3)] = setting(
        default=1.0, help="a silent worker is given up after so long: its streams go on elsewhere", why="stalls pass"
    )

    def check_default(self) -> Iterable[At]:
        """The model of requests that name none."""
        if self.default_model is not None and self.default_model not in self.models:
            yield At(f"there is no model '{self.default_model}'; models: {', '.join(self.models)}", "default_model")

    def check_pools(self) -> Iterable[At]:
        """Pools that models name."""
        for name, model in self.models.items():
            if model.pool is not None and model.pool not in self.pools:
                yield At(f"there is no pool '{model.pool}'; pools: {_listed(self.pools)}", "models", name, "pool")

    def check_routes(self) -> Iterable[At]:
        """Pools that further paths name."""
        for number, route in enumerate(self.routes):
            if route.pool not in self.pools:
                text = f"there is no pool '{route.pool}' for {route.path}; pools: {_listed(self.pools)}"
                yield At(text, "routes", number, "pool")

    def check_loops(self) -> Iterable[At]:
        """Workers that are this very gateway: it would send a request to itself until no descriptor is left."""
        own = Listening(listener.address for listener in self.listen)
        for key, name, entries in self._workers():
            for number, url in urls(entries):
                if own.leads_here(url):
                    yield At(f"'{url}' is this gateway's own listener", key, name, "workers", number)

    def check_registration(self) -> Iterable[At]:
        """Sidecars that nobody could tell from strangers."""
        for key, name, entries in self._workers():
            for number, entry in enumerate(entries):
                if entry.registered is not None and self.hop_key is None:
                    text = "sidecars register with the `hop_key` that they share with this gateway: give it"
                    yield At(text, key, name, "workers", number)

    def _workers(self) -> Iterator[tuple[str, str, tuple[WorkerEntry, ...]]]:
        """Every list of workers, with the two keys that lead to it."""
        for name, pool in self.pools.items():
            yield "pools", name, pool.workers
        for name, model in self.models.items():
            yield "models", name, model.workers

    def check_models_of_conditions(self) -> Iterable[At]:
        """Models that no call can name."""
        for number, entry in enumerate(self.plugins):
            for place, name in enumerate(entry.terms.when.model if entry.terms.when is not None else ()):
                if name not in self.models:
                    yield At(no_model(name), "plugins", number, "when", "model", place)

    def check_elsewhere(self) -> Iterable[At]:
        """Pools that plugins send calls to which their own cannot answer."""
        return unknown_pools(self.plugins, self.pools, self._owned())

    def check_names(self) -> Iterable[At]:
        """Models and pools that plugins name."""
        return unknown_names(self.plugins, self.models, [*self.pools, *self._owned()])

    def _owned(self) -> list[str]:
        """The pools of models that list their workers themselves."""
        return [f"model:{name}" for name, model in self.models.items() if model.workers]


def state_folder(settings: Relay) -> Path:
    """The folder for what must outlive a restart."""
    return settings.state or own_folder()


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"
