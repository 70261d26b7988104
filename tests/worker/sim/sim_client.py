"""A bare HTTP client and a way to start a sim, for the tests of the simulated engine."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tailrace.worker.sim import ManualClock, Sim, SimSettings, serve

CAPTURES = Path(__file__).parent / "captures"
CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
HELLO = {"model": "tiny", "messages": [{"role": "user", "content": "hello"}], "temperature": 0}


@contextlib.asynccontextmanager
async def running(clock: ManualClock | None = None, **knobs: Any) -> AsyncIterator[Sim]:
    quick: dict[str, Any] = {"ttft_ms": 0, "itl_ms": 0, "prefill_tokens_per_s": 0}
    named = {"model": "./tiny", "served_model_names": ("tiny",), "seed": 1}
    sim = await serve(SimSettings(**(quick | named | knobs)), clock)
    try:
        yield sim
    finally:
        await sim.close()


def capture(name: str) -> bytes:
    return (CAPTURES / "raw" / f"{name}.http").read_bytes()


def captured_request(name: str) -> bytes:
    path = CAPTURES / "requests" / f"{name}.json"
    return path.read_bytes() if path.exists() else b""


def head_of(method: str, path: str, body: bytes, headers: dict[str, str]) -> bytes:
    lines = {"host": "sim", "content-type": "application/json", "content-length": str(len(body))} | headers
    return (f"{method} {path} HTTP/1.1\r\n" + "".join(f"{k}: {v}\r\n" for k, v in lines.items()) + "\r\n").encode()


async def connect(sim: Sim) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", sim.port, limit=1 << 22)


async def fetch(sim: Sim, path: str, body: object = None, method: str = "POST", **headers: str) -> Answer:
    """One request on its own connection, to the end of it."""
    sent = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    named = {key.replace("_", "-"): value for key, value in headers.items()}
    reader, writer = await connect(sim)
    writer.write(head_of(method, path, sent, {"connection": "close"} | named) + sent)
    raw = await reader.read()
    writer.close()
    await writer.wait_closed()
    return read_answer(raw)


async def get(sim: Sim, path: str) -> Answer:
    return await fetch(sim, path, method="GET")


@dataclass
class Answer:
    """Bytes from a socket, taken apart."""

    raw: bytes
    status: int
    head: list[bytes]
    chunks: list[bytes]
    """Of a chunked body, without the last."""
    body: bytes
    ended: bool
    """Whether a chunked body came to its end."""

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[Any]:
        """The JSON of each event; other data as text."""
        found = []
        for event in self.body.split(b"\n\n"):
            data = [line[6:] for line in event.split(b"\n") if line.startswith(b"data: ")]
            if data:
                found.append(json.loads(data[0]) if data[0].startswith(b"{") else data[0].decode())
        return found

    @property
    def text(self) -> str:
        """What a streamed chat or completion says, of the first choice."""
        choices = [event["choices"][0] for event in self.events if isinstance(event, dict) and event.get("choices")]
        return "".join(c["text"] if "text" in c else c["delta"].get("content") or "" for c in choices if not c["index"])


def read_answer(raw: bytes) -> Answer:
    head, _, body = raw.partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    status = int(lines[0].split(b" ")[1]) if lines[0] else 0
    chunks, ended = [], False
    if b"transfer-encoding: chunked" in lines:
        while body:
            size, _, rest = body.partition(b"\r\n")
            if (length := int(size, 16)) == 0:
                ended = rest == b"\r\n"
                break
            chunks.append(rest[:length])
            if rest[length : length + 2] != b"\r\n":
                break
            body = rest[length + 2 :]
        body = b"".join(chunks)
    return Answer(raw, status, lines, chunks, body, ended)


async def turns(count: int = 20) -> None:
    """Let the loop carry what is on its way."""
    for _ in range(count):
        await asyncio.sleep(0)
    await asyncio.sleep(0.001)


STREAM = HELLO | {"stream": True, "max_tokens": 9}


async def begin(sim: Sim, path: str = CHAT, body: dict[str, Any] = STREAM, **headers: str) -> Any:
    """Send a request on a connection that is kept alive."""
    reader, writer = await connect(sim)
    raw = json.dumps(body).encode()
    writer.write(head_of("POST", path, raw, headers) + raw)
    return reader, writer


async def rest(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Answer:
    """What still comes on a connection that ends."""
    raw = await reader.read()
    writer.close()
    return read_answer(raw)


def contents(answer: Answer) -> int:
    """How many chunks of a chat stream are of a token; some have no text, where a character is not whole yet."""
    deltas = [choice["delta"] for event in answer.events if "choices" in event for choice in event["choices"]]
    return sum("content" in delta and "role" not in delta for delta in deltas)


def texts(answer: Answer) -> list[str]:
    """The text of each chunk of a streamed completion."""
    return [event["choices"][0]["text"] for event in answer.events if isinstance(event, dict)]
