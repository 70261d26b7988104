"""How the supervisor speaks with its processes: questions and answers as JSON lines on a socket pair."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

LONGEST = 64 << 20
"""A line holds at most a configuration file, whose own limit is far below."""

Answer = Callable[[str, dict[str, Any]], Awaitable[Any]]


class Refused(Exception):  # noqa: N818 - an answer, not an error of the program
    """The other end could not do what it was asked; the text says why."""


class Gone(Exception):  # noqa: N818 - an event of every shutdown
    """The other end has closed the channel, or died."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """The first message to a process: all that it needs to serve."""

    role: str
    name: str
    """The file the configuration came from; relative paths in it are looked up next to it."""
    text: str
    sockets: tuple[int, ...]
    tenure: dict[str, Any]
    """What the sockets were opened for, and what else no reload changes: a Tenure in plain."""
    index: int
    count: int
    generation: int
    metrics: int | None
    board: int | None
    births: int
    drained: tuple[str, ...]
    host_unready: tuple[str, ...]
    """Why the host should get no new traffic."""
    found: dict[str, Any]
    """The workers that discovery has found."""
    who: str
    """How it calls itself in the log."""

    @property
    def descriptors(self) -> tuple[int, ...]:
        """The files that the process inherits."""
        return (*self.sockets, *(fd for fd in (self.metrics, self.board, self.births) if fd is not None))


class Channel:
    """One end. It may ask, and it answers through `answer`; each question is answered as soon as that is done."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answer: Answer | None) -> None:
        self._reader = reader
        self._writer = writer
        self._answer = answer
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self._count = 0
        self._answering: set[asyncio.Task[None]] = set()
        self._listening = asyncio.ensure_future(self._listen())

    @classmethod
    async def over(cls, sock: socket.socket, answer: Answer | None = None) -> Channel:
        """A channel over one end of a socket pair."""
        reader, writer = await asyncio.open_unix_connection(sock=sock, limit=LONGEST)
        return cls(reader, writer, answer)

    async def ask(self, what: str, **fields: Any) -> Any:
        """Ask the other end and wait for its answer; raises Refused or Gone."""
        if self._listening.done():
            raise Gone
        self._count += 1
        number = self._count
        future = self._asked[number] = asyncio.get_running_loop().create_future()
        try:
            self._send({"ask": number, "what": what, "fields": fields})
            return await future
        finally:
            self._asked.pop(number, None)

    async def closed(self) -> None:
        """Wait until the other end is gone."""
        await asyncio.wait([self._listening])

    async def close(self) -> None:
        """Hang up."""
        self._listening.cancel()
        for task in tuple(self._answering):
            task.cancel()
        self._writer.close()
        await asyncio.wait([self._listening, *self._answering])

    def _send(self, message: Mapping[str, Any]) -> None:
        self._writer.write(orjson.dumps(message) + b"\n")

    async def _listen(self) -> None:
        try:
            while line := await self._reader.readline():
                self._take(orjson.loads(line))
        except (OSError, ValueError):
            pass
        finally:
            for future in self._asked.values():
                if not future.done():
                    future.set_exception(Gone())

    def _take(self, message: dict[str, Any]) -> None:
        if "ask" in message:
            task = asyncio.ensure_future(self._reply(message))
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)
            return
        future = self._asked.get(message["to"])
        if future is None or future.done():
            return
        if "refused" in message:
            future.set_exception(Refused(message["refused"]))
        else:
            future.set_result(message["answer"])

    async def _reply(self, message: dict[str, Any]) -> None:
        number = message["ask"]
        try:
            if self._answer is None:
                raise Refused("nobody answers here")
            answer = await self._answer(message["what"], message["fields"])
        except Refused as refusal:
            self._send({"to": number, "refused": str(refusal)})
        else:
            self._send({"to": number, "answer": answer})
