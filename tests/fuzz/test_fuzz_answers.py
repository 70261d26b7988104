"""Malformed answers of workers: clients get honest ones, in order, with one status line, and no false success."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path

import orjson
import pytest
import uvloop
from fakes import chunked
from tailrace.proxy import dialects
from tailrace.proxy.dialects import Dialect, Sign
from tailrace.proxy.sse import Splitter

from fuzz.answers import Got
from fuzz.arena import BARE_CHAINS, CHAINS, SECONDS, Arena, arena, waves
from fuzz.mutation import mutated, pieces
from fuzz.test_fuzz_requests import request

pytestmark = pytest.mark.timeout(120 + 2 * SECONDS)
CAPTURES = Path(__file__).parents[1] / "worker" / "sim" / "captures" / "raw"
ROUTES: dict[str, tuple[str, Dialect, tuple[str, ...]]] = {
    "chat": (
        "/v1/chat/completions",
        dialects.CHAT,
        ("stream", "stream_usage", "stream_n2", "tool_named_stream", "stream_token_ids", "unary", "overload_admission"),
    ),
    "completions": (
        "/v1/completions",
        dialects.COMPLETIONS,
        ("completion_stream", "completion", "drain_new_completion"),
    ),
    "messages": ("/v1/messages", dialects.MESSAGES, ("messages_stream", "messages", "messages_unknown_model")),
    "responses": ("/v1/responses", dialects.RESPONSES, ("responses_stream", "responses")),
}
ODD_EVENTS = (
    *(
        b": comment\n\n",
        b"data: [DONE]\n\n",
        b"data: {\n\n",
        b"data:\n\n",
        b"\n",
        b"event: ping\ndata: {}\n\n",
        b"\r\n\r\n",
    ),
    b'data: {"error":{"message":"m","type":"InternalServerError","param":null,"code":500}}\n\n',
    b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"abort"}]}\n\n',
    b'data: {"choices":[{"index":0,"delta":{"content":"\\"error\\" [DONE]"},"finish_reason":null}]}\n\n',
    b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"m"}}\n\n',
    b'data: {"type":"response.failed","response":{"error":{"message":"m"}}}\n\n',
)


def capture(name: str) -> bytes:
    return (CAPTURES / f"{name}.http").read_bytes().replace(b"connection: close\r\n", b"", 1)


def payload(raw: bytes) -> bytes:
    """The body of a captured stream, without its framing."""
    rest = raw.partition(b"\r\n\r\n")[2]
    body = b""
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        body += rest[: int(size, 16)]
        rest = rest[int(size, 16) + 2 :]
    return body


class Script:
    """The worker's next answers: each request takes the one that its own `seed` field names."""

    def __init__(self) -> None:
        self._ready: dict[int, tuple[Sequence[bytes], str]] = {}

    def put(self, number: int, parts: Sequence[bytes], ending: str) -> None:
        self._ready[number] = (parts, ending)

    def __call__(self, body: bytes) -> tuple[Sequence[bytes], str]:
        return self._ready[orjson.loads(body)["seed"]]


def asking(path: str, number: int, *, stream: bool) -> bytes:
    body = {"model": "m", "stream": stream, "seed": number, "messages": [], "prompt": "a", "input": "a"}
    return request(path, orjson.dumps(body))


@pytest.mark.parametrize("chain", CHAINS)
def test_malformed_bytes(chain: str) -> None:
    """Whatever bytes come, the client's own framing stays whole."""
    script = Script()
    raws = {name: [capture(each) for each in names] for name, (_, _, names) in ROUTES.items()}
    every = [raw for each in raws.values() for raw in each]

    async def case(here: Arena, random_: random.Random) -> None:
        name = random_.choice(list(ROUTES))
        raw = random_.choice(raws[name])
        number = random_.getrandbits(50)
        ending = random_.choice(("keep", "close", "reset"))
        script.put(number, pieces(random_, mutated(random_, raw, every)), ending)
        path = ROUTES[name][0]
        got = await here.ask([asking(path, number, stream=b"event-stream" in raw)], reset=random_.random() < 0.3)
        assert len(got) <= 1
        for answer in got:
            assert answer.status != 500 or b"InternalServerError" in answer.body or answer.complete

    async def body() -> None:
        async with arena(script, chain) as here:
            here.workers.answers_well = False
            assert await waves(here, 2_000_000, lambda random_: case(here, random_), 1 / len(CHAINS)) > 100

    asyncio.Runner(loop_factory=uvloop.new_event_loop).run(body())


@pytest.mark.parametrize("chain", BARE_CHAINS)
def test_malformed_streams(chain: str) -> None:
    """Well framed events, in any order and with any end: a prefix of what came is shown, and its end is honest."""
    script = Script()
    streams = {
        name: [payload(capture(each)) for each in names if "stream" in each] for name, (_, _, names) in ROUTES.items()
    }

    async def case(here: Arena, random_: random.Random) -> None:
        name = random_.choice(list(ROUTES))
        path, dialect, _ = ROUTES[name]
        sent = disturbed(random_, random_.choice(streams[name]))
        number = random_.getrandbits(50)
        framed = [chunked(piece) for piece in pieces(random_, sent) if piece]
        ending = random_.choice(("keep", "keep", "close", "reset", "silence"))
        if ending == "keep":
            framed.append(b"0\r\n\r\n")
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        script.put(number, [head, *pieces(random_, b"".join(framed))], "keep" if ending == "silence" else ending)
        got = await here.ask([asking(path, number, stream=True)])
        assert len(got) <= 1
        for answer in got:
            if answer.status == 200:
                check(answer, sent, dialect)

    async def body() -> None:
        async with arena(script, chain) as here:
            assert await waves(here, 3_000_000, lambda random_: case(here, random_), 1 / len(BARE_CHAINS)) > 100

    asyncio.Runner(loop_factory=uvloop.new_event_loop).run(body())


def disturbed(random_: random.Random, stream: bytes) -> bytes:
    """A stream with events missing, repeated, out of place, foreign, or cut."""
    splitter = Splitter()
    events = [event.raw for event in splitter.feed(stream)]
    for _ in range(random_.randint(0, 3)):
        at = random_.randrange(len(events) + 1)
        way = random_.random()
        if way < 0.3:
            events.insert(at, random_.choice(ODD_EVENTS))
        elif way < 0.5:
            del events[at : at + random_.randint(1, 3)]
        elif way < 0.6:
            events[at:at] = events[at : at + 2]
        elif way < 0.7:
            random_.shuffle(events)
        elif way < 0.8:
            del events[at:]
        elif events:
            events[at % len(events)] = mutated(random_, events[at % len(events)], most=1)
    whole = b"".join(events)
    return whole[: random_.randrange(len(whole) + 1)] if random_.random() < 0.2 else whole


def check(answer: Got, sent: bytes, dialect: Dialect) -> None:
    """What was shown came from the worker in this order; a complete answer ended as its API says."""
    shown = answer.body.replace(dialect.heartbeat, b"")
    came = sent.replace(dialect.heartbeat, b"")
    if not came.startswith(shown):
        # Behind whole events, nothing but the one error event of the gateway may follow.
        end = shown[:-2].rfind(b"\n\n")
        end = end + 2 if end >= 0 else 0
        assert came.startswith(shown[:end])
        assert b'"error"' in shown[end:]
        assert not answer.complete
    splitter = Splitter()
    signs = [dialect.judge(event) for event in splitter.feed(shown) + splitter.finish()]
    if answer.complete:
        assert Sign.ERROR not in signs
        assert Sign.ABORTED not in signs
        assert signs.count(Sign.DONE) <= 1
        assert Sign.DONE in signs or Sign.FINISH in signs, shown[-200:]
