#!/usr/bin/env python3
"""What `cache` takes of a call that it answers, of one that it does not, and of memory: in one process, no sockets.

loadtests/bench/cache.py --entries 200000
"""

import argparse
import asyncio
import gc
import resource
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import orjson
from tailrace.plugins.cache import Cache
from tailrace.plugins.cache.settings import Config
from tailrace.proxy.body import JsonBody
from tailrace.proxy.head import RequestHead
from tailrace.proxy.routes import INFERENCE
from tailrace.proxy.stored.answer import Answer
from tailrace.proxy.stored.shelf import Shelf
from tailrace.proxy.testing.answers import chat_answer

ROUTE = next(route for route in INFERENCE if route.name == "chat")
ENTRY = SimpleNamespace(pool=SimpleNamespace(name="m"), served="m")
TURNS = 20_000


class Call:
    """As much of a call as the plugin looks at."""

    route, entry, model, pinned = ROUTE, ENTRY, "m", None
    head = RequestHead("POST", ROUTE.path, b"", ROUTE.path.encode(), [], "1.1")

    def __init__(self, raw: bytes, stream: bool) -> None:
        self.body = JsonBody(raw, 64)
        self.stream = stream
        self._state: dict[Any, Any] = {}

    def fact(self, kind: type) -> None:
        return None

    def publish(self, limit: int) -> Any:
        return SimpleNamespace(open=False)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._state[key] = value

    def __contains__(self, key: Any) -> bool:
        return key in self._state


def took(what: Callable[[Any], object], calls: list[Any]) -> float:
    """Microseconds of one, the best of five rounds."""
    best = float("inf")
    part = len(calls) // 5
    for turn in range(5):
        gc.collect()
        began = time.process_time()
        for call in calls[turn * part : (turn + 1) * part]:
            what(call)
        calls[turn * part : (turn + 1) * part] = [None] * part
        best = min(best, (time.process_time() - began) / part)
    return best * 1e6


def request(number: int, size: int, *, temperature: float = 0, stream: bool = False) -> bytes:
    text = f"{number} " + "word " * (size // 5)
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": text}]
    return orjson.dumps(
        {"model": "m", "messages": messages, "temperature": temperature, "max_tokens": 256, "stream": stream}
    )


def in_memory(options: argparse.Namespace) -> None:
    """What so many answers take."""
    now, before = time.time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    kept = Shelf(8 << 30)
    text = "x" * options.answer
    for number in range(options.entries):
        body = bytes(memoryview(orjson.dumps(chat_answer(text + str(number)))))
        key = number.to_bytes(16, "big")
        kept.put(key, Answer(body, bytes(key), now, now + 999, "=tenant", "m", "chat", number, number))
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(
        f"{options.entries} answers of {len(body)} bytes: {(after - before) / 1024:.0f} MiB, "
        f"{kept.size / (1 << 20):.0f} MiB by their own count"
    )


async def main() -> None:
    p = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    p.add_argument("--entries", type=int, default=200_000, help="answers to keep (default: %(default)s)")
    p.add_argument("--answer", type=int, default=1000, help="characters of each (default: %(default)s)")
    options = p.parse_args()
    in_memory(options)
    plugin = Cache(Config())
    async with plugin.running():
        shelf: Shelf = plugin._kept._shelf  # type: ignore[union-attr]
        body = orjson.dumps(chat_answer("an answer of a model. " * 40))
        for size in (200, 1000, 8000):
            for stream in (False, True):
                miss = took(plugin.on_request, [Call(request(n, size, stream=stream), stream) for n in range(TURNS)])
                hot = request(-1, size, stream=stream)
                asked: Any = plugin._desk.asked(Call(hot, stream))  # type: ignore[arg-type]
                now = time.time()
                shelf.put(asked.key, Answer(body, asked.check, now, now + 999, "", "m", "chat", 10, 10))
                hit = took(plugin.on_request, [Call(hot, stream) for _ in range(TURNS)])
                drawn = [Call(request(n, size, temperature=0.7), False) for n in range(TURNS)]
                print(
                    f"prompt of {size}, {'stream' if stream else 'unary '}: hit {hit:.1f} us, miss {miss:.1f} us, "
                    f"bypass {took(plugin.on_request, drawn):.1f} us"
                )


if __name__ == "__main__":
    asyncio.run(main())
