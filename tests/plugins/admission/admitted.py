"""What tests of places use: a worker that answers when told, a chain, and a class that a header says."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import orjson
from cases.scene import CHAT, DONE, END, FINISH, ROLE, framed, scene
from fakes import Connection, Request, chat_answer, chat_chunk, json_answer, sse_head
from tailrace.proxy.call import Call
from tailrace.proxy.fault import Reject
from tailrace.proxy.plugin import Plugin
from tailrace.proxy.service_class import ServiceClass
from tailrace.proxy.testing.worker import Script

WHOLE = json_answer(chat_answer("hi"))


@dataclass(frozen=True)
class Nothing:
    """Nothing to set."""


class Says(Plugin[Nothing]):
    """The class that a header says; refuses, when a call leaves a line, those with this word in their body."""

    Config = Nothing

    def on_request(self, call: Call) -> None:
        call.provide(ServiceClass(call.head.folded.get(b"x-tailrace-class", b"interactive").decode()))

    def recheck(self, call: Call) -> None:
        if b"revoked" in call.raw:
            raise Reject(401, "invalid_api_key", "It was revoked.")


class Held:
    """A worker that answers when it is told to, one request at a time."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.gone: list[str] = []
        self._go = asyncio.Semaphore(0)

    def release(self, count: int = 1) -> None:
        for _ in range(count):
            self._go.release()

    async def __call__(self, conn: Connection, request: Request) -> None:
        user = request.json().get("user", "")
        self.seen.append(user)
        waits = asyncio.ensure_future(self._go.acquire())
        gone = asyncio.ensure_future(conn.wait_closed())
        await asyncio.wait({waits, gone}, return_when=asyncio.FIRST_COMPLETED)
        gone.cancel()
        if waits.cancel():
            self.gone.append(user)
            return
        if request.json().get("stream"):
            await conn.send(sse_head() + framed([ROLE, chat_chunk(user), FINISH, DONE]) + END)
        else:
            await conn.send(json_answer(chat_answer(user)))


def chain(config: str, *before: str) -> str:
    return "\n".join(["- cases.witness:Witness", *before, f"- admission: {config}"])


def asks(user: str, body: dict = CHAT) -> dict:
    return {**body, "user": user}


def plugin_of(s):
    return s.process.service.chain.pipeline.links[-1].plugin


def counted(s, name: str, **labels: str) -> float:
    return sum(value for each, has, value in plugin_of(s).metrics() if each == name and labels.items() <= has.items())


async def begin(s, user: str, of: str = "interactive", body: dict = CHAT, **headers: str):
    client = await s.client()
    told = {"x-tailrace-class": of, **{name.replace("_", "-"): value for name, value in headers.items()}}
    await client.request("POST", "/v1/chat/completions", orjson.dumps(asks(user, body)), told)
    return client


def with_classes(script: Script, config: str = "{capacity: 1}", *before: str):
    """A scene in which a header says the class of a call."""
    return scene(script, plugins=chain(config, "- admitted:Says", *before))
