"""What rescue tests act with: workers behind a wire that is cut after so many events, and what a client makes of it."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from fakes import Answer, RawClient, gateway
from tailrace.proxy.gateway import GatewayProcess

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"


class Shears:
    """A wire to one worker. `cut_after` counts the events of the next stream; all wires of a scene share one pair."""

    def __init__(self) -> None:
        self.cut_after: int | None = None
        self.cuts = 0

    @asynccontextmanager
    async def wire(self, url: str) -> AsyncIterator[str]:
        """The URL of a wire to a worker."""
        host, port = url.removeprefix("http://").split(":")
        tasks: set[asyncio.Task[None]] = set()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            tasks.add(task)
            try:
                up_reader, up_writer = await asyncio.open_connection(host, int(port))
                there = asyncio.ensure_future(_copy(reader, up_writer))
                try:
                    await self._back(up_reader, writer)
                finally:
                    there.cancel()
                    up_writer.close()
            except (OSError, asyncio.CancelledError):
                pass
            finally:
                writer.close()
                tasks.discard(task)

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        try:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        finally:
            server.close()
            for task in tuple(tasks):
                task.cancel()

    async def _back(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen = b""
        while data := await reader.read(65536):
            if self.cut_after is not None:
                seen += data
                # Everything up to the event that is one too many, and half of that.
                pieces = seen.split(b"data: ")
                if len(pieces) > self.cut_after + 1:
                    behind = b"data: ".join(pieces[self.cut_after + 1 :])
                    keep = max(0, len(data) - len(behind) + len(behind) // 2 - 6)
                    self.cut_after = None
                    self.cuts += 1
                    writer.write(data[:keep])
                    with contextlib.suppress(ConnectionError):
                        await writer.drain()
                    return
            writer.write(data)
            await writer.drain()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.write_eof()


@dataclass
class Essence:
    """A streamed answer without its chunk borders."""

    text: str = ""
    ids: list[int] = field(default_factory=list)
    ends: list[tuple[str, Any]] = field(default_factory=list)
    usage: list[tuple[int, int]] = field(default_factory=list)
    names: set[tuple[str, int, str, str]] = field(default_factory=set)
    prelude: int = 0
    done: bool = False
    errors: list[Any] = field(default_factory=list)


def essence(body: bytes) -> Essence:
    """What a client reads of a stream."""
    seen = Essence()
    for raw in body.split(b"\n\n"):
        if not raw or raw.startswith(b":"):
            continue
        assert raw.startswith(b"data: "), raw
        if raw == b"data: [DONE]":
            seen.done = True
            continue
        assert not seen.done, "something follows the end"
        said = json.loads(raw[6:])
        if "error" in said:
            seen.errors.append(said["error"])
            continue
        seen.names.add((said["id"], said["created"], said["model"], said["object"]))
        _add_choices(seen, said["choices"])
        if said.get("usage") and not said["choices"]:
            seen.usage.append((said["usage"]["prompt_tokens"], said["usage"]["completion_tokens"]))
    return seen


def _add_choices(seen: Essence, choices: Sequence[Any]) -> None:
    for choice in choices:
        delta = choice.get("delta")
        if delta is not None:
            seen.prelude += "role" in delta
            seen.text += delta.get("content") or ""
        else:
            seen.text += choice["text"]
        seen.ids += choice.get("token_ids") or []
        if choice["finish_reason"]:
            seen.ends.append((choice["finish_reason"], choice["stop_reason"]))


def same(calm: Essence, other: Essence) -> str:
    """What differs between two streams of one request, empty where nothing does."""
    for name in ("text", "ids", "ends", "usage", "prelude", "done", "errors"):
        if getattr(calm, name) != getattr(other, name):
            return f"{name}: {getattr(calm, name)!r} is {getattr(other, name)!r}"
    if len(other.names) != 1 or {names[2:] for names in calm.names} != {names[2:] for names in other.names}:
        return f"names: {calm.names} are {other.names}"
    return ""


@dataclass
class Scene:
    """A gateway that rescues, before workers behind wires."""

    process: GatewayProcess
    shears: Shears

    async def ask(self, path: str, body: dict[str, Any], *, cut_after: int | None = None) -> Answer:
        """One streamed request on a connection of its own."""
        self.shears.cut_after = cut_after
        async with RawClient(self.process.doors[0].shown) as client:
            return await client.post(path, {**body, "stream": True})


@asynccontextmanager
async def rescuing(urls: Sequence[str], plugins: str = "rescue, retry", *, key: str = "") -> AsyncIterator[Scene]:
    """A gateway before these workers."""
    shears = Shears()
    async with AsyncExitStack() as stack:
        wires = [await stack.enter_async_context(shears.wire(url)) for url in urls]
        yaml = f"""
            role: gateway
            listen: [127.0.0.1:0]
            admin: off
            pre_stop: 0
            pools: {{them: {{workers: [{", ".join(wires)}]{f", api_key: {key}" if key else ""}}}}}
            models: {{tiny: {{pool: them}}}}
            plugins: [{plugins}]
            """
        yield Scene(await stack.enter_async_context(gateway(yaml)), shears)
