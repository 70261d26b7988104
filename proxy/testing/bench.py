"""One plugin in a real gateway between a scripted worker and a client, all in this loop and on loopback."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import orjson
from tailrace.proxy.config import decode_source, parse
from tailrace.proxy.entry import PluginEntry, Terms
from tailrace.proxy.gateway import GatewayProcess, running
from tailrace.proxy.plugin import AnyPlugin, Plugin
from tailrace.proxy.settings import Gateway
from tailrace.proxy.testing.answers import chunked, json_answer, sse_head
from tailrace.proxy.testing.client import Answer, RawClient
from tailrace.proxy.testing.worker import Connection, Request, Script, Upstream

if TYPE_CHECKING:
    from tailrace.proxy.call import Call
    from tailrace.proxy.outcome import Outcome

Feed: TypeAlias = Literal["whole", "split", "joined", "bytes"] | int
"""How a worker's bytes arrive: an event at a time, each event cut in two, all at once, a byte at a time, or all of them
cut in two at one place."""
Scripted: TypeAlias = Sequence[bytes] | bytes | Mapping[str, Any] | Script
"""A worker's answer: the events of a stream, raw bytes with their head, a JSON body, or a script."""


@dataclass(frozen=True, slots=True)
class Exchange(Answer):
    """A client's answer, and the request as the worker saw it: None where it saw none."""

    seen: Request | None = None


class Bench:
    """What a test holds: `post` and `get`, the running plugin, the worker, and every finished call with its Outcome."""

    def __init__(self, process: GatewayProcess, upstream: Upstream, plugin: AnyPlugin, calls: _Calls) -> None:
        self.process = process
        self.upstream = upstream
        self.plugin = plugin
        self.calls = calls.finished

    @property
    def url(self) -> str:
        """The gateway's URL, for clients of the test's own."""
        return self.process.doors[0].shown

    async def post(self, path: str, body: Any, headers: dict[str, str] | None = None) -> Exchange:
        """Send a JSON request over a new connection and read its answer."""
        return await self.send("POST", path, body if isinstance(body, bytes) else orjson.dumps(body), headers)

    async def get(self, path: str, headers: dict[str, str] | None = None) -> Exchange:
        """Send a GET over a new connection and read its answer."""
        return await self.send("GET", path, b"", headers)

    async def send(self, method: str, path: str, body: bytes, headers: dict[str, str] | None = None) -> Exchange:
        """Send any request over a new connection and read its answer."""
        before = len(self.upstream.requests)
        async with RawClient(self.url) as client:
            await client.request(method, path, body, headers)
            answer = await client.read_answer(method=method)
        seen = self.upstream.requests[-1] if len(self.upstream.requests) > before else None
        return Exchange(answer.head, answer.body, answer.raw_body, answer.chunks, answer.complete, seen)


@asynccontextmanager
async def plugin_bench(
    plugin: type[AnyPlugin],
    config: Mapping[str, Any] | object | None = None,
    *,
    answer: Scripted,
    feed: Feed = "whole",
    terms: Mapping[str, Any] | None = None,
    before: Sequence[PluginEntry] = (),
    settings: Mapping[str, Any] | None = None,
) -> AsyncIterator[Bench]:
    """A gateway with this plugin and the model `m`; raises ConfigError where a configuration is wrong.

    `config` is the plugin's part of the YAML as a mapping, or a Config. `terms` are what stands beside it (when,
    budget_ms, on_error, weight), `before` are plugins further up the list (see `entry_of`), and `settings` is more of
    the gateway's YAML.
    """
    calls = _Calls(None)
    async with Upstream(scripted(answer, feed)) as upstream:
        yaml = {"listen": ["127.0.0.1:0"], "models": {"m": {"workers": [upstream.url]}}, **(settings or {})}
        gateway = _decoded(Gateway, yaml)
        tested = entry_of(plugin, config, **(terms or {}))
        # The outermost plugin of an answer: what it notes is final.
        chain = (entry_of(_Calls, calls), *before, tested)
        async with running(dataclasses.replace(gateway, plugins=chain)) as process:
            links = process.service.chain.pipeline.links
            yield Bench(process, upstream, links[-1].plugin, calls)


def entry_of(plugin: type[AnyPlugin], config: Mapping[str, Any] | object | None = None, **terms: Any) -> PluginEntry:
    """An entry of the `plugins:` list."""
    if config is None or isinstance(config, Mapping):
        config = _decoded(plugin.Config, dict(config or {}))
    decoded = _decoded(Terms, terms) if terms else Terms()
    return PluginEntry(name=plugin.__name__.lower(), plugin=plugin, config=config, terms=decoded)


def _decoded(kind: type[Any], plain: Mapping[str, Any]) -> Any:
    return decode_source(kind, parse(orjson.dumps(plain, default=str).decode(), "bench.yaml"))


class _Calls(Plugin[Any]):
    """Notes every finished call; it is its own configuration, so that the bench keeps hold of what it notes."""

    Config = object

    def __init__(self, config: _Calls | None) -> None:
        super().__init__(config)
        self.finished: list[tuple[Call, Outcome]] = [] if config is None else config.finished

    def on_complete(self, call: Call, outcome: Outcome) -> None:
        self.finished.append((call, outcome))


def scripted(answer: Scripted, feed: Feed) -> Script:
    """A script that gives this answer in such pieces."""
    if callable(answer):
        return answer
    if isinstance(answer, Mapping):
        answer = json_answer(answer)
    if isinstance(answer, bytes):
        head, _, body = answer.partition(b"\r\n\r\n")
        pieces = [head + b"\r\n\r\n", *([body] if feed == "whole" else cut([body], feed))]
    else:
        pieces = [sse_head(), *[chunked(piece) for piece in cut(answer, feed)], chunked(b"")]

    async def script(conn: Connection, request: Request) -> None:
        for piece in pieces:
            await conn.send(piece)
            # Two turns of the loop: one to write the piece, one for the gateway to read it alone.
            await asyncio.sleep(0)

    return script


def cut(events: Sequence[bytes], feed: Feed) -> Iterator[bytes]:
    """The bytes of a stream's events in the pieces that `feed` says."""
    if feed == "whole":
        yield from events
    elif feed == "joined":
        yield b"".join(events)
    elif feed == "bytes":
        data = b"".join(events)
        yield from (data[at : at + 1] for at in range(len(data)))
    elif feed == "split":
        for event in events:
            yield from (event[: len(event) // 2], event[len(event) // 2 :])
    else:
        data = b"".join(events)
        yield from (piece for piece in (data[:feed], data[feed:]) if piece)
