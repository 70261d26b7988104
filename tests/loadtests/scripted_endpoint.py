"""An endpoint on a real socket that answers each request as its script says."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import orjson

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"
DONE = b"data: [DONE]\n\n"

# What an answer is made of: bytes go out, a coroutine function is waited for. The end of it closes nothing.
Step = bytes | Callable[[], object]


class Close(Exception):  # noqa: N818 - no error, the script's word for hanging up
    """Raised by a step: close the connection."""


def close() -> object:
    raise Close


def event(payload: object) -> bytes:
    return b"data: " + orjson.dumps(payload) + b"\n\n"


def chat_delta(**delta: object) -> bytes:
    return event({"choices": [{"index": 0, "delta": delta}]})


def chunk(body: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(body), body)


def stream(*events: bytes) -> bytes:
    """A whole streamed answer, one chunk an event."""
    return HEAD + b"".join(map(chunk, events)) + LAST_CHUNK


def plain(body: bytes, status: str = "200 OK") -> bytes:
    return b"HTTP/1.1 %b\r\ncontent-length: %d\r\n\r\n%b" % (status.encode(), len(body), body)


GOOD_STREAM = stream(chat_delta(role="assistant", content=""), chat_delta(content="a"), chat_delta(content="b"), DONE)


@dataclass
class Request:
    head: bytes
    body: bytes


@dataclass
class Endpoint:
    """`script` gives the steps of the answer to the request of a number."""

    script: Callable[[int], list[Step]]
    port: int = 0
    connections: int = 0
    requests: list[Request] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
                number = len(self.requests)
                self.requests.append(Request(head, await reader.readexactly(length)))
                for step in self.script(number):
                    if isinstance(step, bytes):
                        writer.write(step)
                    elif asyncio.iscoroutine(waited := step()):
                        await waited
        except (asyncio.IncompleteReadError, ConnectionError, Close):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def serving(script: Callable[[int], list[Step]], *, tls: ssl.SSLContext | None = None) -> AsyncIterator[Endpoint]:
    endpoint = Endpoint(script)
    tasks: set[asyncio.Task[None]] = set()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(endpoint.serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=tls)
    endpoint.port = server.sockets[0].getsockname()[1]
    try:
        yield endpoint
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
