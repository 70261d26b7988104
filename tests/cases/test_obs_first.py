"""OBS: times to first token and durations are those of content, and of what workers made."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson
import pytest
from fakes import (
    CHAT,
    PATH,
    RawClient,
    Upstream,
    chat_chunk,
    chunked,
    event,
    gateway,
    run,
    sse_head,
    until,
    yaml_for,
)
from scrape import Scrape
from tailrace.proxy.plugin import Plugin
from tailrace.proxy.reply import Reply
from tailrace.proxy.trace.told import Record

STREAM = {**CHAT, "stream": True}
ROLE = chat_chunk("", role="assistant")
WELL = chunked(chat_chunk(finish="stop")) + chunked(event("[DONE]")) + b"0\r\n\r\n"
LATE = 0.05


@dataclass(frozen=True)
class Config:
    pass


class Cached(Plugin[Config]):
    """Answers in a worker's place."""

    Config = Config

    def on_request(self, call: Any) -> Reply:
        return Reply(200, b'{"choices": []}', source="cache")


@dataclass(frozen=True)
class Choice:
    first: str


class Patient(Plugin[Choice]):
    """Asks one worker first, and another one soon."""

    Config = Choice

    def score_workers(self, call: Any, candidates: Sequence[Any]) -> Sequence[float]:
        return [float(worker.name == self.config.first) for worker in candidates]

    def patience(self, call: Any, tries: Sequence[Any]) -> float:
        return 0.02


class Seen:
    """What was counted and remembered of the only call."""

    def __init__(self, process: Any) -> None:
        self.scrape = Scrape(process)
        [raw] = process.service.ring.all()
        self.record = Record.of(raw)

    def count(self, name: str, **labels: str) -> float:
        return self.scrape.value(name, **labels) or 0

    @property
    def first_tokens(self) -> float:
        return self.count("time_to_first_token_seconds_count")


async def seen(*pieces: bytes, plugins: str = "[]", more: str = "", leave: bytes = b"", close: bool = False) -> Seen:
    """One stream of these pieces, LATE apart."""

    async def worker(conn: Any, request: Any) -> None:
        await conn.send(sse_head())
        for piece in pieces:
            await conn.send(piece)
            await asyncio.sleep(LATE)
        if close:
            conn.fin()

    async with Upstream(worker) as upstream, gateway(yaml_for(upstream, plugins=plugins, more=more)) as process:
        async with RawClient(process.doors[0].shown) as client:
            if leave:
                await client.request("POST", PATH, orjson.dumps(STREAM))
                await client.read_until(leave)
            else:
                await client.post(PATH, STREAM)
        await until(lambda: process.service.ring.all())
        return Seen(process)


@pytest.mark.parametrize(
    "before",
    [(chunked(b": busy\n\n"),), (chunked(ROLE),), (chunked(ROLE), chunked(b": busy\n\n"))],
    ids=["comment", "role", "both"],
)
def test_OBS_10_the_first_token_is_content(before: tuple[bytes, ...]) -> None:
    async def body() -> None:
        found = await seen(*before, chunked(chat_chunk("a")), WELL)
        assert found.first_tokens == 1
        least = LATE * len(before) - 0.005  # timers count whole milliseconds
        assert found.count("time_to_first_token_seconds_sum") >= least
        assert (found.record.first - found.record.started) / 1e9 >= least

    run(body())


def test_OBS_10_a_heartbeat_is_no_token() -> None:
    async def body() -> None:
        quiet = (b"",) * 8
        found = await seen(*quiet, chunked(chat_chunk("a")), WELL, more="heartbeat: 0.1\n")
        assert found.count("time_to_first_token_seconds_sum") >= LATE * len(quiet) - 0.01

    run(body())


@pytest.mark.parametrize("before", [(), (chunked(ROLE),)], ids=["alone", "behind a role"])
def test_OBS_10_an_error_event_is_no_token(before: tuple[bytes, ...]) -> None:
    async def body() -> None:
        error = event({"error": {"message": "no", "type": "InternalServerError", "code": 500}})
        found = await seen(*before, chunked(error), chunked(event("[DONE]")) + b"0\r\n\r\n")
        assert found.first_tokens == 0
        assert found.record.first == 0
        assert found.record.usage is None
        assert found.count("requests_total", outcome="failed", code="500") == 1
        assert found.count("attempts_total", outcome="failed") == 1

    run(body())


def test_OBS_10_a_stream_that_breaks_off_is_labelled_as_such() -> None:
    async def body() -> None:
        found = await seen(chunked(chat_chunk("a")), close=True)
        assert found.first_tokens == 1
        assert found.count("requests_total", outcome="completed") == 0
        assert found.count("attempts_total", outcome="won") == 0
        assert found.record.ending == "upstream_lost" or found.record.failed
        assert not [name for name, _, _ in found.scrape.samples if name.startswith("gen_ai_server")]

    run(body())


def test_OBS_10_so_is_one_whose_client_leaves() -> None:
    async def body() -> None:
        found = await seen(chunked(chat_chunk("a")), *((chunked(chat_chunk("b")),) * 20), WELL, leave=b"data:")
        assert found.count("requests_total", outcome="client_gone", code="499") == 1
        assert found.count("requests_total", outcome="completed") == 0
        assert found.count("attempts_total", outcome="cancelled") == 1

    run(body())


def test_OBS_10_what_a_plugin_answers_is_no_workers_time() -> None:
    async def body() -> None:
        found = await seen(plugins=f"['{__name__}:Cached']")
        assert found.record.source == "cache"
        names = {name for name, _, value in found.scrape.samples if value}
        for family in ("time_to_first_token_seconds", "request_duration_seconds", "stage_seconds", "attempts_total"):
            assert not [name for name in names if name.startswith(f"tailrace_{family}")]
        assert found.count("requests_total", outcome="completed") == 1

    run(body())


def test_OBS_10_what_the_gateway_refuses_is_no_workers_time() -> None:
    async def body() -> None:
        async with gateway(yaml_for("http://127.0.0.1:1")) as process:
            async with RawClient(process.doors[0].shown) as client:
                await client.post(PATH, {**STREAM, "model": "nobody's"})
            found = Seen(process)
            assert found.first_tokens == 0
            assert found.count("request_duration_seconds_count") == 0

    run(body())


def test_OBS_10_of_a_hedge_the_one_that_is_shown_counts() -> None:
    async def never(conn: Any, request: Any) -> None:
        await conn.wait_closed()

    async def good(conn: Any, request: Any) -> None:
        await conn.send(sse_head() + chunked(chat_chunk("a")) + WELL)

    async def body() -> None:
        async with Upstream(never) as slow, Upstream(good) as quick:
            plugins = f"- {__name__}:Patient: {{first: '{slow.url}'}}\n"
            async with gateway(yaml_for(slow, quick, plugins=plugins)) as process:
                async with RawClient(process.doors[0].shown) as client:
                    await client.post(PATH, STREAM)
                found = Seen(process)
                assert found.first_tokens == 1
                assert found.count("time_to_first_token_seconds_sum") >= 0.015
                assert found.count("attempts_total", outcome="won", why="hedge") == 1
                assert found.count("attempts_total", outcome="cancelled", why="first") == 1
                cancelled, won = found.record.tries
                assert (cancelled.first, won.first) == (0, found.record.first)

    run(body())
