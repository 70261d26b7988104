"""For the tests of plugins: a plugin in a real gateway, between a scripted worker and a client.

    async with plugin_bench(MyPlugin, {"fields": ["ssn"]}, answer=stream_of(["hel", "lo"]), feed="bytes") as bench:
        answer = await bench.post("/v1/chat/completions", {"model": "m", "messages": [], "stream": True})
        assert answer.status == 200
        assert answer.seen.json()["stream"] is True

`feed` says how the worker's bytes are cut: an editing tap must give the same text for all of them.
"""

from tailrace.proxy.testing.answers import (
    answer,
    chat_answer,
    chat_chunk,
    chunked,
    event,
    json_answer,
    sse_answer,
    sse_head,
    stream_of,
)
from tailrace.proxy.testing.bench import Bench, Exchange, Feed, cut, entry_of, plugin_bench, scripted
from tailrace.proxy.testing.client import Answer, RawClient, RawHead
from tailrace.proxy.testing.worker import Connection, Request, Script, Upstream, sending

__all__ = [
    "Answer",
    "Bench",
    "Connection",
    "Exchange",
    "Feed",
    "RawClient",
    "RawHead",
    "Request",
    "Script",
    "Upstream",
    "answer",
    "chat_answer",
    "chat_chunk",
    "chunked",
    "cut",
    "entry_of",
    "event",
    "json_answer",
    "plugin_bench",
    "scripted",
    "sending",
    "sse_answer",
    "sse_head",
    "stream_of",
]
