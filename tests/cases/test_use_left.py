"""USE: clients that leave in the middle of a stream are billed for what they were sent, no more and no less."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest
from billed import Scene, billed, cost, stream, token
from certificates import Authority
from fakes import PATH, RawClient, event, run, sse_head
from tailrace.proxy.testing.answers import chunked

from cases.scene import STREAM

SENT = 40
LAST = b"t%d " % SENT


class Half:
    """Sends 40 tokens of 100, and the rest when `go` is set, if anybody still listens."""

    def __init__(self, events: list[bytes]) -> None:
        self._events = events
        self.go = asyncio.Event()

    async def __call__(self, conn, request):
        await conn.send(sse_head())
        for each in self._events[: SENT + 1]:
            await conn.send(chunked(each))
        await self.go.wait()
        for each in self._events[SENT + 1 :]:
            await conn.send(chunked(each))


async def plain(scene: Scene) -> RawClient:
    await scene.client.request("POST", PATH, orjson.dumps(STREAM))
    await scene.client.read_until(LAST)
    return scene.client


async def http_1_0(scene: Scene) -> RawClient:
    await scene.client.request("POST", PATH, orjson.dumps(STREAM), version="1.0")
    await scene.client.read_until(LAST)
    return scene.client


async def compressed(scene: Scene) -> RawClient:
    await scene.client.request("POST", PATH, orjson.dumps(STREAM), {"accept-encoding": "gzip"})
    head = await scene.client.read_head()
    assert head.header("content-encoding") == "gzip"
    decoder, text = zlib.decompressobj(zlib.MAX_WBITS | 16), b""
    while LAST not in text:
        chunk = await scene.client.read_chunk()
        assert chunk is not None
        text += decoder.decompress(chunk[0])
    return scene.client


async def over_tls(scene: Scene) -> RawClient:
    authority = scene.kept["authority"]
    client = await RawClient.connect(scene.process.doors[1].shown, tls=authority.trusting())
    await client.request("POST", PATH, orjson.dumps(STREAM))
    await client.read_until(LAST)
    return client


def resets(begin: Callable) -> Callable:
    async def reset(scene: Scene) -> RawClient:
        client = await begin(scene)
        client.rst()
        return client

    return reset


def half_closes(begin: Callable) -> Callable:
    async def close(scene: Scene) -> RawClient:
        client = await begin(scene)
        client.fin()
        return client

    return close


WAYS = {
    "closes": plain,
    "resets": resets(plain),
    "closes its half": half_closes(plain),
    "HTTP/1.0": http_1_0,
    "gzip": compressed,
    "TLS": over_tls,
}


@pytest.mark.parametrize("running", [True, False], ids=["running usage", "no usage"])
@pytest.mark.parametrize("way", WAYS)
def test_USE_06_who_leaves_pays_for_what_was_sent(tmp_path: Path, way: str, running: bool) -> None:
    events = stream(100, 9, running=running)

    async def main() -> None:
        worker = Half(events)
        listen, kept = "127.0.0.1:0", {}
        if way == "TLS":
            authority = kept["authority"] = Authority(tmp_path)
            pair = authority.issue("gateway")
            listen += f", {{address: 127.0.0.1:0, tls: {{cert: {pair.cert}, key: {pair.key}}}}}"
        async with billed(tmp_path, worker, listen=listen, top="compression: {streams: true}\n") as scene:
            scene.kept = kept
            client = await WAYS[way](scene)
            if way not in ("resets", "closes its half"):
                await client.close()
            record = await scene.record()
            worker.go.set()
            assert (record.ending, record.status, record.requests) == ("client_gone", 499, 1)
            assert (record.completion, record.estimated) == (SENT, not running)
            assert record.prompt == 9 if running else record.prompt > 0
            assert record.amount == cost(record.prompt, SENT)
            assert record.delivered > 0
            await client.close()

    run(main())


@pytest.mark.parametrize("choices", [1, 3])
def test_USE_06_several_choices(tmp_path: Path, choices: int) -> None:
    """Each choice brings figures of its own; the prompt is one."""
    events = [token(number, index=index) for number in range(21) for index in range(choices)]

    async def main() -> None:
        go = asyncio.Event()

        async def script(conn, request):
            await conn.send(sse_head())
            for each in events:
                await conn.send(chunked(each))
            await go.wait()

        async with billed(tmp_path, script) as scene:
            await scene.client.request("POST", PATH, orjson.dumps({**STREAM, "n": choices}))
            for _ in range(choices):
                await scene.client.read_until(b"t20 ")
            await scene.client.close()
            record = await scene.record()
            go.set()
            assert (record.prompt, record.completion, record.ending) == (9, 20 * choices, "client_gone")
            assert record.amount == cost(9, 20 * choices)

    run(main())


def message_events(count: int) -> list[bytes]:
    """The beginning of a stream of Anthropic's API, which states the prompt at once."""
    said = {"input_tokens": 9, "output_tokens": 0, "cache_read_input_tokens": 2}
    start = {"type": "message_start", "message": {"id": "m1", "type": "message", "model": "m", "usage": said}}
    delta = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "t "}}
    return [event(start, "message_start"), *[event(delta, "content_block_delta")] * (count - 1), final(delta, count)]


def final(delta, count: int) -> bytes:
    return event({**delta, "delta": {"type": "text_delta", "text": f"t{count} "}}, "content_block_delta")


def test_USE_06_messages(tmp_path: Path) -> None:
    async def main() -> None:
        worker = Half([*message_events(SENT), *message_events(SENT)])
        async with billed(tmp_path, worker) as scene:
            body = {"model": "m", "max_tokens": 100, "stream": True, "messages": [{"role": "user", "content": "hi"}]}
            await scene.client.request("POST", "/v1/messages", orjson.dumps(body))
            await scene.client.read_until(LAST)
            await scene.client.close()
            record = await scene.record()
            worker.go.set()
            assert (record.prompt, record.cached, record.completion, record.estimated) == (11, 2, SENT, True)
            assert record.amount == cost(11, SENT, 2)

    run(main())


def test_USE_06_who_leaves_just_before_the_end_pays_for_all_but_that(tmp_path: Path) -> None:
    """The trick of users who learnt that an interrupted answer was free."""
    events = stream(100, 9, running=False)

    async def main() -> None:
        go = asyncio.Event()

        async def script(conn, request):
            await conn.send(sse_head())
            for each in events[:-2]:
                await conn.send(chunked(each))
            await go.wait()

        async with billed(tmp_path, script) as scene:
            await scene.client.request("POST", PATH, orjson.dumps(STREAM))
            await scene.client.read_until(b'"finish_reason":"stop"')
            await scene.client.close()
            record = await scene.record()
            go.set()
            assert (record.ending, record.completion, record.estimated) == ("client_gone", 99, True)

    run(main())


def test_USE_06_figures_of_the_whole_that_its_client_never_got_are_lost(tmp_path: Path) -> None:
    """A unary answer that comes too late costs its client nothing; what it took is on record as lost."""

    async def main() -> None:
        async def script(conn, request):
            await conn.wait_closed()

        async with billed(tmp_path, script) as scene:
            body = orjson.dumps({**STREAM, "stream": False, "messages": [{"role": "user", "content": "x" * 400}]})
            await scene.client.request("POST", PATH, body)
            await scene.upstream.asked()
            await scene.client.close()
            record = await scene.record()
            assert (record.ending, record.amount, record.requests) == ("client_gone", 0, 0)
            assert record.lost_prompt == pytest.approx(len(body) / 4, rel=0.1)
            assert record.lost_amount == cost(record.lost_prompt, 0, requests=0)

    run(main())
