"""Warm-up: when it is done, and what it makes of engines that will not be warmed."""

import asyncio

import orjson
import pytest
from aiohttp import web
from engine_doubles import CONTENT, FINISH, ROLE, Clock, HttpEngine, stream
from tailrace.worker.engine.client import EngineClient
from tailrace.worker.engine.settings import WarmupSettings
from tailrace.worker.engine.state import Model, Warmth
from tailrace.worker.engine.warmup import WarmupFailed, steady, warm_up

CHAT = "POST /v1/chat/completions"
COMPLETIONS = "POST /v1/completions"
EMBEDDINGS = "POST /v1/embeddings"
BASE = Model(id="base", max_length=2048)


@pytest.mark.parametrize(
    ("ttfts", "is_steady"),
    [
        ([], False),
        ([1.0, 1.0], False),
        ([1.0, 1.0, 1.0], True),
        ([9.0, 1.0, 1.1, 1.2], True),
        ([1.0, 1.1, 1.21], False),
        ([1.2, 1.0, 1.1], True),
        ([1.0, 1.0, 1.0, 5.0], False),
        ([0.001, 0.004, 0.002], True),
        ([0.020, 0.026, 0.020], False),
        ([0.0, 0.0, 0.0], True),
    ],
)
def test_steadiness(ttfts, is_steady):
    assert steady(ttfts, 3, 0.2) is is_steady


def warmed(engine: HttpEngine, models=(BASE,), clock=None, **settings) -> Warmth:
    async def run() -> Warmth:
        async with engine, EngineClient(engine.url, "k") as client:
            return await warm_up(client, WarmupSettings(**settings), models, *([clock] if clock else []))

    return asyncio.run(run())


class Timed:
    """Streams whose first content comes after the given times on a clock of our own."""

    def __init__(self, *seconds: float) -> None:
        self.clock = Clock()
        self._seconds = iter(seconds)

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"data: " + ROLE + b"\n\n")
        self.clock.now += next(self._seconds)
        await response.write(b"data: " + CONTENT + b"\n\n")
        await response.write(b"data: " + FINISH + b"\n\ndata: [DONE]\n\n")
        return response


def test_prompts_go_on_until_times_hold_still():
    timed = Timed(9.0, 3.0, 1.0, 1.1, 1.05, 99.0)
    engine = HttpEngine(**{CHAT: timed})
    assert warmed(engine, clock=timed.clock) == Warmth(kind="chat", ttfts=(9.0, 3.0, 1.0, 1.1, 1.05), steady=True)


def test_the_number_of_prompts_is_bounded():
    timed = Timed(*(2.0**n for n in range(9)))
    warmth = warmed(HttpEngine(**{CHAT: timed}), clock=timed.clock, prompts=4, limit=1e6)
    assert warmth.ttfts == (1.0, 2.0, 4.0, 8.0)
    assert not warmth.steady


def test_the_time_is_bounded():
    timed = Timed(20.0, 30.0, 40.0, 50.0)
    warmth = warmed(HttpEngine(**{CHAT: timed}), clock=timed.clock, limit=60.0)
    assert warmth.ttfts == (20.0, 30.0, 40.0)


def test_prompts_differ_and_fit_the_model():
    engine = HttpEngine(**{CHAT: stream(CONTENT)})
    warmed(engine, models=(Model(id="lora", parent="base"), Model(id="base", max_length=40)))
    bodies = [orjson.loads(asked[3]) for asked in engine.asked]
    assert len({body["messages"][0]["content"].split()[0] for body in bodies}) == len(bodies) >= 3
    assert all(len(body["messages"][0]["content"].split()) == 10 for body in bodies)
    assert bodies[0]["model"] == "base"
    assert engine.asked[0][2]["authorization"] == "Bearer k"


@pytest.mark.parametrize(
    ("routes", "kind"),
    [
        ({CHAT: stream(ROLE, CONTENT)}, "chat"),
        ({CHAT: stream(ROLE, FINISH)}, "chat"),
        ({CHAT: (400, {"error": {"message": "no chat template"}}), COMPLETIONS: stream(CONTENT)}, "completions"),
        ({EMBEDDINGS: (200, {"data": []})}, "embeddings"),
    ],
)
def test_the_kind_of_model_is_found_out(routes, kind):
    assert warmed(HttpEngine(**routes)).kind == kind


def test_a_configured_kind_is_the_only_one_tried():
    engine = HttpEngine(**{CHAT: stream(CONTENT)})
    assert "embeddings: 404 Not Found" in warmed(engine, kind="embeddings").skipped
    assert engine.paths() == [EMBEDDINGS]


def test_configured_off_nothing_is_sent():
    engine = HttpEngine(**{CHAT: stream(CONTENT)})
    assert warmed(engine, kind="off") == Warmth(skipped="configured off")
    assert not engine.asked


def test_a_model_that_refuses_everything_is_reported():
    warmth = warmed(HttpEngine(**{CHAT: (400, {"error": {"message": "speech\nonly"}})}))
    assert warmth.skipped == "refused: chat: 400 speech only; completions: 404 Not Found; embeddings: 404 Not Found"


def test_an_engine_too_busy_for_a_prompt_is_warm():
    engine = HttpEngine(**{CHAT: (503, {"error": {"message": "engine is currently busy"}})})
    assert "503 engine is currently busy" in warmed(engine).skipped
    assert engine.paths() == [CHAT]


def test_a_wrong_key_fails():
    with pytest.raises(WarmupFailed, match="401 Unauthorized"):
        warmed(HttpEngine(**{CHAT: (401, {"error": "Unauthorized"})}))


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ((500, {"error": {"message": "EngineCore encountered an issue"}}), "500 EngineCore encountered an issue"),
        (stream(ROLE, b'{"error":{"message":"EngineCore died","code":500}}', b"[DONE]"), "EngineCore died"),
        (stream(b'{"choices":[{"delta":{"content":""},"finish_reason":"abort"}]}'), "the stream fails"),
        (stream(ROLE), "without content"),
        (stream(b"[DONE]"), "without content"),
    ],
)
def test_an_engine_that_answers_no_prompt_fails(answer, says):
    with pytest.raises(WarmupFailed, match=says):
        warmed(HttpEngine(**{CHAT: answer}), limit=0.05)


def test_a_prompt_that_hangs_fails_when_the_time_is_over():
    async def hang(request: web.Request) -> web.Response:
        await asyncio.sleep(600)
        raise AssertionError

    with pytest.raises(WarmupFailed, match="no answer"):
        warmed(HttpEngine(**{CHAT: hang}), limit=0.05)
