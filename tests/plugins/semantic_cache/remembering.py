"""A gateway with `semantic_cache` before a worker that says what it was asked, for tests."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass

import orjson
from fakes import chat_answer, json_answer, sse_answer, stream_of, until
from tailrace.plugins.semantic_cache import SemanticCache
from tailrace.proxy.identity import Identity
from tailrace.proxy.plugin import Plugin
from tailrace.proxy.testing import plugin_bench
from tailrace.proxy.testing.bench import entry_of

PATH = "/v1/chat/completions"
MESSAGES = "/v1/messages"
LIVE = {"domains": [{"name": "faq", "model": ["m"], "shadow": False}]}
SHADOW = {"domains": [{"name": "faq", "model": ["m"]}]}


@dataclass(frozen=True)
class NoConfig:
    pass


class Who(Plugin[NoConfig]):
    """Believes what a caller says of itself: a tenant, or NAME/none, a key that has none."""

    Config = NoConfig
    provides = (Identity,)

    def on_request(self, call):
        tenant = call.head.get(b"x-who")
        if tenant is not None:
            key, _, none = tenant.decode().partition("/")
            call.provide(Identity(key=key, tenant="" if none else key))


def usage(prompt=5, completion=3):
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def answering(texts=None):
    """A worker whose answers say which request they are to, with what else it is told to say to some of them."""
    seen = []

    async def script(conn, request):
        body = request.json()
        seen.append(body)
        said = (texts or {}).get(len(seen), f"answer {len(seen)}")
        if request.target == MESSAGES:
            message = {
                "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_sequence": None,
                "content": [{"type": "text", "text": said}], "stop_reason": "end_turn",
                "usage": {"input_tokens": 5, "output_tokens": 3},
            }  # fmt: skip
            await conn.send(json_answer(message))
        elif body.get("stream"):
            events = stream_of(said.split(" "))
            told = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": []}
            events.insert(-1, b"data: " + orjson.dumps({**told, "usage": usage()}) + b"\n\n")
            await conn.send(sse_answer(events))
        else:
            await conn.send(json_answer({**chat_answer(said), "usage": usage()}))

    script.seen = seen
    return script


class Asking:
    def __init__(self, bench, script):
        self.bench = bench
        self.plugin = bench.plugin
        self._script = script

    @property
    def asked(self):
        """How many requests a worker has had."""
        return len(self._script.seen)

    async def ask(self, text, *, path=PATH, headers=None, system=None, who=None, **more):
        """What was answered, whole; a question that may be kept is kept when this is over."""
        messages = [{"role": "user", "content": text}]
        if system is not None:
            messages.insert(0, {"role": "system", "content": system})
        headers = {**(headers or {}), **({"x-who": who} if who else {})}
        answer = await self.bench.post(path, {"model": "m", "messages": messages, **more}, headers)
        await until(lambda: self.plugin._storing._waiting == 0)
        return answer

    async def told(self, *args, **kwargs):
        """What the header says of a question."""
        answer = await self.ask(*args, **kwargs)
        return (answer.header("x-tailrace-semantic-cache") or "").partition(";")[0]

    @property
    def counted(self):
        return {(name, *labels.values()): value for name, labels, value in self.plugin.metrics() if value}


@asynccontextmanager
async def asking(config=LIVE, script=None, **more):
    script = script or answering()
    async with plugin_bench(SemanticCache, config, answer=script, before=[entry_of(Who)], **more) as bench:
        yield Asking(bench, script)
