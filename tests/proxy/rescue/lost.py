"""Scripted engines that give ids, one of which is lost in the middle of an answer, and the gateway before them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import orjson
from cases.scene import END, Scene, errors_of, scene
from fakes import Connection, Request, Script, chunked, event, json_answer, sse_head
from tailrace.plugins.rescue import Rescue
from tailrace.proxy.plugin import Plugin

PROMPT = [1, 2, 3]
COUNT = 6
"""Tokens of a whole answer: number `k`, from 1 on, has the id 100 + k and the text `wk `."""
ASK: dict[str, Any] = {
    "model": "m",
    "messages": [{"role": "user", "content": "hi"}],
    "max_tokens": COUNT,
    "stream": True,
}
WHOLE = "".join([f"w{number} " for number in range(1, COUNT + 1)])
DONE = event("[DONE]")
KILLED = event({"error": {"message": "EngineCore died", "type": "InternalServerError", "param": None, "code": 500}})
PLUGINS = "[cases.witness:Witness, rescue, lost:InOrder]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    pass


class InOrder(Plugin[Config]):
    """Prefers the worker that was named first."""

    Config = Config

    def score_workers(self, call: Any, candidates: Any) -> list[float]:
        """From 1 downwards."""
        return [1.0 / (1 + index) for index in range(len(candidates))]


def token(number: int, *, chat: bool = True, finish: bool = False, ids: Any = None, text: str | None = None) -> bytes:
    """The event of one token of an answer in vLLM's spelling."""
    text = f"w{number} " if text is None else text
    choice: dict[str, Any] = {"index": 0, **({"delta": {"content": text}} if chat else {"text": text})}
    choice |= {"logprobs": None, "finish_reason": "length" if finish else None}
    if finish or not chat:
        choice["stop_reason"] = None
    choice["token_ids"] = [100 + number] if ids is None else ids
    return _event([choice], chat=chat)


def _event(choices: list[Any], *, chat: bool, **more: Any) -> bytes:
    name, kind = ("chatcmpl-1", "chat.completion.chunk") if chat else ("cmpl-9", "text_completion")
    return event({"id": name, "object": kind, "created": 1 if chat else 9, "model": "m", "choices": choices, **more})


def role(prompt: Iterable[int] = PROMPT) -> bytes:
    """How a chat begins."""
    choice = {"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}
    return _event([choice], chat=True, prompt_token_ids=list(prompt), prompt_text=None)


def usage(completion: int, prompt: int = len(PROMPT), *, chat: bool = True) -> bytes:
    """The event with the usage of the whole."""
    figures = {"prompt_tokens": prompt, "total_tokens": prompt + completion, "completion_tokens": completion}
    return _event([], chat=chat, usage=figures)


class Engine:
    """One worker's script. A stream of its own ends as `fate` says behind `after` tokens; `on` are other scripts."""

    def __init__(self, fate: str = "", after: int = 2) -> None:
        self.fate = fate
        self.after = after
        self.on: dict[str, Script] = {}
        self.asked: list[Request] = []

    def paths(self) -> list[str]:
        """What it was asked, in order."""
        return [request.target for request in self.asked]

    def bodies(self, path: str) -> list[Any]:
        """The bodies of what it was asked there."""
        return [request.json() for request in self.asked if request.target == path]

    async def __call__(self, conn: Connection, request: Request) -> None:
        if request.method == "GET":
            await conn.send(json_answer({"object": "list", "data": []}))
            return
        self.asked.append(request)
        script = self.on.get(request.target)
        if script is not None:
            await script(conn, request)
        elif request.target == "/tokenize":
            await conn.send(json_answer({"count": len(PROMPT), "max_model_len": 1 << 20, "tokens": PROMPT}))
        elif request.target == "/detokenize":
            text = "".join([f"w{number - 100} " for number in request.json()["tokens"]])
            await conn.send(json_answer({"prompt": text}))
        else:
            await self._generate(conn, request.json())

    async def _generate(self, conn: Connection, asked: Any) -> None:
        chat = "messages" in asked
        began = 1 if chat else 1 + len(asked["prompt"]) - len(PROMPT)
        await conn.send(sse_head())
        if chat:
            await conn.send(chunked(role()))
        last = began + asked["max_tokens"] - 1
        for number in range(began, last + 1):
            if self.fate and number - began == self.after:
                await self._meet(conn, token(number, chat=chat))
                return
            await conn.send(chunked(token(number, chat=chat, finish=number == last)))
        if self.fate == "unpaid":
            conn.close()
            return
        if asked.get("stream_options"):
            prompt = len(PROMPT) if chat else len(asked["prompt"])
            await conn.send(chunked(usage(last - began + 1, prompt, chat=chat)))
        await conn.send(chunked(DONE) + END)

    async def _meet(self, conn: Connection, following: bytes) -> None:
        fate = self.fate
        if fate == "rst":
            conn.rst()
        elif fate == "fin":
            conn.close()
        elif fate == "half":
            await conn.send(chunked(following)[: len(following) // 2])
            conn.close()
        elif fate == "half in a chunk":
            await conn.send(chunked(following[: len(following) // 2]))
            conn.close()
        elif fate == "killed":
            await conn.send(chunked(KILLED) + chunked(DONE) + END)
        elif fate == "killed in pieces":
            for piece in (chunked(KILLED), chunked(DONE), END):
                await conn.send(piece)
        elif fate == "end":
            await conn.send(END)
        elif fate == "done":
            await conn.send(chunked(DONE) + END)
        elif fate == "abort":
            aborted = following.replace(b'"finish_reason":null', b'"finish_reason":"abort"')
            await conn.send(chunked(aborted) + chunked(DONE) + END)
        elif fate == "hang":
            await conn.wait_closed()
        else:
            raise AssertionError(fate)


def begins(*pieces: bytes) -> Script:
    """A chat that ends in the middle."""

    async def script(conn: Connection, request: Request) -> None:
        await conn.send(sse_head() + b"".join([chunked(piece) for piece in (role(), *pieces)]))
        conn.close()

    return script


def pausing(pause: float, after: int = 2) -> Script:
    """An engine's answer to a chat with a pause in it."""

    async def script(conn: Connection, request: Request) -> None:
        await conn.send(sse_head() + chunked(role()))
        for number in range(1, COUNT + 1):
            await conn.send(chunked(token(number, finish=number == COUNT)))
            if number == after:
                await asyncio.sleep(pause)
        await conn.send(chunked(DONE) + END)

    return script


class Held:
    """A script that says when it was asked, and waits until it may answer."""

    def __init__(self, then: Script | None = None) -> None:
        self.asked = asyncio.Event()
        self.go = asyncio.Event()
        self.left = asyncio.Event()
        self._then = then

    async def __call__(self, conn: Connection, request: Request) -> None:
        self.asked.set()
        gone = asyncio.ensure_future(conn.wait_closed())
        going = asyncio.ensure_future(self.go.wait())
        await asyncio.wait({gone, going}, return_when=asyncio.FIRST_COMPLETED)
        for task in (gone, going):
            task.cancel()
        if not self.go.is_set():
            self.left.set()
        elif self._then is not None:
            await self._then(conn, request)


async def tokenizes(conn: Connection, request: Request) -> None:
    await conn.send(json_answer({"count": 3, "max_model_len": 1 << 20, "tokens": PROMPT}))


async def goes_on(conn: Connection, request: Request) -> None:
    asked = request.json()
    first = 1 + len(asked["prompt"]) - len(PROMPT)
    events = [token(number, chat=False, finish=number == 6) for number in range(first, 7)]
    await conn.send(sse_head() + b"".join([chunked(event) for event in [*events, DONE]]) + END)


STEPS = {"/tokenize": tokenizes, "/v1/completions": goes_on}


def held_at(path: str) -> tuple[Engine, Held]:
    engine, held = Engine(), Held(STEPS[path])
    engine.on[path] = held
    return engine, held


def text_of(body: bytes) -> str:
    """The text of a chat as its client reads it."""
    text = ""
    for line in body.split(b"\n"):
        if line.startswith(b"data: {"):
            for choice in orjson.loads(line[6:]).get("choices", ()):
                text += choice["delta"].get("content") or ""
    return text


def finishes(body: bytes) -> list[str]:
    """The reasons why choices ended."""
    bodies = [orjson.loads(line[6:]) for line in body.split(b"\n") if line.startswith(b"data: {")]
    choices = [choice for each in bodies for choice in each.get("choices", ())]
    return [choice["finish_reason"] for choice in choices if choice["finish_reason"]]


def usages(body: bytes) -> list[Any]:
    """The usage that a client was told, wherever it stood."""
    bodies = [orjson.loads(line[6:]) for line in body.split(b"\n") if line.startswith(b"data: {")]
    return [each["usage"] for each in bodies if each.get("usage")]


def is_whole(body: bytes) -> bool:
    """Whether a client got all of the answer, once, and a good end."""
    good = body.endswith(DONE) and body.count(b"[DONE]") == 1 and not errors_of(body)
    return good and text_of(body) == WHOLE and finishes(body) == ["length"] and body.count(b'"role"') == 1


def rescues(scene: Scene) -> Any:
    """The plugin."""
    return next(link.plugin for link in scene.process.service.chain.pipeline.links if isinstance(link.plugin, Rescue))


def take_out(scene: Scene, place: int) -> None:
    """Let a worker have no new calls."""
    (worker,) = [worker for worker in scene.process.roster.workers if worker.name == scene.upstreams[place].url]
    worker.drained = True
    worker.changed()


@asynccontextmanager
async def losing(*engines: Engine, plugins: str = PLUGINS, more: str = "") -> AsyncIterator[Scene]:
    """A gateway before these engines, asked in this order; nothing may be left in the end."""
    async with scene(*engines, plugins=plugins, more=more, workers=max(2, len(engines))) as seen:
        yield seen
