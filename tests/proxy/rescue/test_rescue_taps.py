"""Taps that fail at what a rescue makes: their call ends, and keeps no other from leaving a worker."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pytest
from cases.scene import Scene, errors_of
from fakes import PATH, Connection, Request, chunked, json_answer, run, sending, sse_head
from lost import ASK, PLUGINS, Engine, losing, role, text_of, token
from tailrace.proxy.fault import Fault, fallen_silent
from tailrace.proxy.outcome import Ending
from tailrace.proxy.parting import part
from tailrace.proxy.plugin import Plugin
from tailrace.proxy.pool import ConnectionPool


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    at: str = "nowhere"


class Tap:
    """Fails at the event that has these bytes in it."""

    def __init__(self, at: bytes) -> None:
        self._at = at

    def feed(self, event: Any) -> Iterable[Any]:
        if self._at in event.raw:
            raise ValueError("no such event")
        return (event,)

    def finish(self, outcome: Any) -> Iterable[Any]:
        return ()

    def body(self, data: bytes) -> bytes:
        return data


class Fails(Plugin[Config]):
    """Taps the streams of clients that say `user: tapped`."""

    Config = Config

    def on_stream(self, call: Any, head: Any) -> Tap | None:
        return Tap(self.config.at.encode()) if call.body.get("user") == "tapped" else None


TAPPED = {**ASK, "user": "tapped"}


def failing(at: str) -> str:
    return PLUGINS.replace("rescue,", f"rescue, {{test_rescue_taps:Fails: {{at: '{at}'}}}},")


def owing() -> Engine:
    """An engine whose stream is lost behind its finish reason; with a `max_tokens` of 7 it is silent before that."""
    engine = Engine()

    async def script(conn: Connection, request: Request) -> None:
        most = request.json()["max_tokens"]
        await conn.send(sse_head() + chunked(role()))
        for number in range(1, 7 if most == 6 else 3):
            await conn.send(chunked(token(number, finish=number == 6)))
        await conn.wait_closed()

    engine.on[PATH] = script
    return engine


def busy_at(scene: Scene, place: int) -> Any:
    (worker,) = [worker for worker in scene.process.roster.workers if worker.name == scene.upstreams[place].url]
    return worker


@pytest.mark.parametrize("at", ["[DONE]", '"choices":[]'])
def test_a_tap_that_fails_at_an_end_that_is_made_here(at: str) -> None:
    async def body() -> None:
        async with losing(owing(), Engine(), plugins=failing(at)) as scene:
            client = await scene.begin({**TAPPED, "stream_options": {"include_usage": True}})
            await client.read_until(b"w6 ")
            for connection in tuple(busy_at(scene, 0).connections.busy):
                connection.doubt(fallen_silent("a test"), True)
            outcome = await scene.outcome()
            assert outcome.fault is not None
            assert (outcome.ending, outcome.fault.kind) == (Ending.FAILED, "internal")

    run(body())


def test_a_tap_that_fails_at_the_error_that_nobody_could_mend() -> None:
    async def body() -> None:
        victim, other = Engine("killed"), Engine()
        victim.on["/tokenize"] = other.on["/tokenize"] = sending(json_answer({"detail": "Not Found"}, 404))
        async with losing(victim, other, plugins=failing('"error"')) as scene:
            answer = await scene.ask(TAPPED)
            assert text_of(answer.body) == "w1 w2 "
            (error,) = errors_of(answer.body)
            assert error["code"] == "internal_error"
            assert (await scene.outcome()).ending is Ending.FAILED

    run(body())


def test_a_call_that_fails_as_it_leaves_keeps_no_other_at_its_worker() -> None:
    async def body() -> None:
        async with losing(owing(), Engine(), plugins=failing("[DONE]")) as scene:
            begun = [await scene.begin({**TAPPED, "max_tokens": 6}) for _ in range(2)]
            for client in begun:
                await client.read_until(b"w6 ")
            going = [await scene.begin({**ASK, "max_tokens": 7}) for _ in range(3)]
            for client in going:
                await client.read_until(b"w2 ")
            part(busy_at(scene, 0))
            for client in going:
                assert b"w7 " in await client.read_until(b"[DONE]")
            await scene.outcome(5)

    run(body())


@pytest.mark.interpreted  # methods are replaced
def test_whatever_fails_at_one_call_the_others_are_told_to_leave(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[Fault] = []

    def fails(fault: Fault, lost: bool) -> None:
        told.append(fault)
        raise RuntimeError("a bug")

    monkeypatch.setattr(ConnectionPool, "connecting", [fails, fails])

    async def body() -> None:
        async with losing(Engine("hang"), Engine()) as scene:
            clients = [await scene.begin(ASK) for _ in range(2)]
            for client in clients:
                await client.read_until(b"w2 ")
            part(busy_at(scene, 0))
            for client in clients:
                assert b"w6 " in await client.read_until(b"[DONE]")

    run(body())
    assert len(told) == 2
    assert len([record for record in caplog.records if "could not leave" in record.message]) == 2
