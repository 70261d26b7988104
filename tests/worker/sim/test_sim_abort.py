"""A client that goes away costs nothing from then on."""

from typing import Any

import pytest
from fakes import run, until
from sim_client import CHAT, COMPLETIONS, HELLO, begin, fetch, running


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, HELLO | {"stream": True, "max_tokens": 999}),
        (CHAT, HELLO | {"stream": False, "max_tokens": 999}),
        (CHAT, {"messages": HELLO["messages"], "n": 3, "stream": True, "max_tokens": 999}),
        (COMPLETIONS, {"prompt": ["a", "b"], "max_tokens": 999}),
        ("/v1/messages", HELLO | {"stream": True, "max_tokens": 999}),
        ("/v1/responses", {"input": "hello", "stream": True}),
    ],
    ids=["stream", "unary", "n", "batch", "messages", "responses"],
)
def test_running_sequences_are_freed(path: str, body: dict[str, Any]) -> None:
    async def ask() -> None:
        async with running(itl_ms=5, answer_tokens=0) as sim:
            _, writer = await begin(sim, path, body)
            await until(lambda: sim.metrics.generation_tokens >= 2)
            assert sim.scheduler.running == body.get("n", 2 if isinstance(body.get("prompt"), list) else 1)
            assert sim.engine.load == 1
            writer.close()
            await until(lambda: sim.scheduler.running == 0)
            assert sim.engine.load == 0
            said = sim.metrics.generation_tokens
            assert sum(sim.metrics.finish_reasons.values()) == 0
            # The next request is served as if nothing had been.
            assert (await fetch(sim, CHAT, HELLO | {"max_tokens": 3})).status == 200
            assert sim.metrics.generation_tokens == said + 3

    run(ask())


def test_waiting_sequence_leaves_the_queue() -> None:
    async def ask() -> None:
        async with running(itl_ms=60_000, max_num_seqs=1) as sim:
            body = HELLO | {"stream": True, "max_tokens": 99}
            _, first = await begin(sim, CHAT, body)
            await until(lambda: sim.scheduler.running == 1)
            _, second = await begin(sim, CHAT, body)
            await until(lambda: sim.scheduler.waiting == 1)
            second.close()
            await until(lambda: sim.scheduler.waiting == 0)
            assert sim.scheduler.running == 1
            first.close()
            await until(lambda: sim.scheduler.running == 0)

    run(ask())


def test_client_that_resets_is_gone_too() -> None:
    async def ask() -> None:
        async with running(itl_ms=1, answer_tokens=0) as sim:
            reader, writer = await begin(sim, CHAT, HELLO | {"stream": True, "max_tokens": 1999})
            await reader.readuntil(b"\r\n\r\n")
            writer.transport.abort()
            await until(lambda: sim.scheduler.running == 0 and sim.connections == 0)

    run(ask())
