"""The cases of workers that die in mid-stream (UPD), where another worker could go on, and where it could not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import openai
import pytest
from cases.scene import END, errors_of
from fakes import PATH, Connection, Request, Script, chunked, json_answer, run, sending, sse_head
from lost import (
    ASK,
    DONE,
    KILLED,
    PLUGINS,
    WHOLE,
    Engine,
    is_whole,
    losing,
    role,
    text_of,
    token,
)
from tailrace.proxy.outcome import Ending
from tailrace.proxy.plugin import Plugin

HOPELESS = {**ASK, "seed": 7}
ENDS: dict[str, Any] = {"rst": Connection.rst, "fin": Connection.close}


def begins(count: int, end: str) -> Script:
    async def script(conn: Connection, request: Request) -> None:
        events = [role(), *[token(number) for number in range(1, count + 1)]] if count else []
        await conn.send(sse_head() + b"".join([chunked(event) for event in events]))
        if end == "clean":
            await conn.send(END)
        else:
            ENDS[end](conn)

    return script


@pytest.mark.parametrize("end", ["rst", "fin"])
@pytest.mark.parametrize("count", [0, 3])
def test_UPD_01_a_dead_stream_goes_on_or_is_not_dressed_up(count: int, end: str) -> None:
    async def body() -> None:
        for asked in (ASK, HOPELESS):
            victim, other = Engine(), Engine()
            victim.on[PATH] = begins(count, end)
            async with losing(victim, other) as scene:
                answer = await scene.ask(asked)
                if count and asked is ASK:
                    assert is_whole(answer.body)
                elif not count:
                    # Nothing was shown: this is a matter of retries, of which there are none here.
                    assert answer.status == 502
                else:
                    assert b"[DONE]" not in answer.body
                    assert len(errors_of(answer.body)) == 1
                    assert (await scene.outcome()).ending is Ending.UPSTREAM_LOST

    run(body())


@pytest.mark.parametrize("goes_on", [True, False])
def test_UPD_01_an_official_sdk_reads_the_whole_or_raises(goes_on: bool) -> None:
    async def body() -> None:
        async with losing(Engine("rst", 3), Engine()) as scene:
            client = openai.AsyncOpenAI(base_url=scene.url + "/v1", api_key="x", max_retries=0)
            fields = ASK if goes_on else HOPELESS
            stream = await client.chat.completions.create(**fields)
            text = ""
            try:
                async for chunk in stream:
                    text += "".join([choice.delta.content or "" for choice in chunk.choices])
                assert goes_on
            except openai.APIError:
                assert not goes_on
            assert text == (WHOLE if goes_on else "w1 w2 w3 ")
            await client.close()

    run(body())


@pytest.mark.parametrize("end", ["rst", "fin", "clean"])
def test_UPD_02_a_clean_end_is_only_that_of_a_whole_answer(end: str) -> None:
    async def body() -> None:
        for nobody in (False, True):
            victim, other = Engine(), Engine()
            victim.on[PATH] = begins(3, end)
            if nobody:
                refuses = sending(json_answer({"error": {"message": "no", "code": 500}}, 500))
                victim.on["/tokenize"] = other.on["/tokenize"] = refuses
            async with losing(victim, other) as scene:
                answer = await scene.ask(ASK)
                assert answer.complete is is_whole(answer.body) is not nobody

    run(body())


def test_UPD_06_one_prelude_whoever_answers() -> None:
    async def body() -> None:
        broken, victim, other = Engine(), Engine("fin"), Engine()
        broken.on[PATH] = sending(sse_head() + chunked(role()) + chunked(KILLED) + chunked(DONE) + END)
        plugins = PLUGINS.replace("rescue,", "rescue, retry,")
        async with losing(broken, victim, other, plugins=plugins) as scene:
            answer = await scene.ask(ASK)
            assert is_whole(answer.body)
            assert [attempt.why for attempt in scene.witness.calls[0].tries] == ["first", "retry", "rescue"]

    run(body())


@pytest.mark.parametrize("prelude", [True, False])
def test_UPD_08_content_and_error_in_one_read(prelude: bool) -> None:
    """Without content it is a matter of retries; with some the stream goes on behind it."""

    async def body() -> None:
        victim, other = Engine(), Engine()
        events = [role(), *([] if prelude else [token(1)]), KILLED, DONE]
        victim.on[PATH] = sending(sse_head() + b"".join([chunked(event) for event in events]) + END)
        plugins = PLUGINS.replace("rescue,", "rescue, retry,")
        async with losing(victim, other, plugins=plugins) as scene:
            answer = await scene.ask(ASK)
            assert is_whole(answer.body)
            why = [attempt.why for attempt in scene.witness.calls[0].tries]
            assert why == ["first", "retry" if prelude else "rescue"]

    run(body())


@pytest.mark.parametrize("garbage", [b'data: {"id":\n\n', b"data: hello\n\n", b"data: \x00\n\n", b"data: \xff\xfe\n\n"])
def test_UPD_10_garbage_before_the_loss_is_passed_on_and_the_stream_goes_on(garbage: bytes) -> None:
    async def body() -> None:
        victim, other = Engine(), Engine()

        async def lost(conn: Connection, request: Request) -> None:
            for event in (role(), token(1), garbage, token(2)):
                await conn.send((sse_head() if b'"role"' in event else b"") + chunked(event))
            conn.rst() if garbage.endswith(b"hello\n\n") else conn.close()

        victim.on[PATH] = lost
        async with losing(victim, other) as scene:
            answer = await scene.ask(ASK)
            assert answer.body.count(garbage) == 1
            assert is_whole(answer.body.replace(garbage, b""))

    run(body())


# UPD-04: plugins that fail on the way to the other worker, or when the stream has gone on there.


@dataclass(frozen=True, kw_only=True)
class Phase:
    phase: str


class Late(Plugin[Phase]):
    """Fails in one phase, but only behind the first worker's content."""

    Config = Phase

    def _at(self, phase: str) -> None:
        if self.config.phase == phase:
            raise ValueError("broken")

    def allow(self, call: Any, tries: Any, why: str) -> bool:
        self._at("allow")
        return True

    def score_workers(self, call: Any, candidates: Any) -> list[float]:
        if call.tries:
            self._at("score_workers")
        return [0.0] * len(candidates)

    def on_chosen(self, call: Any, attempt: Any) -> bool:
        if attempt.why == "rescue":
            self._at("on_chosen")
        return True

    def on_commit(self, call: Any, attempt: Any) -> None:
        if attempt.why == "rescue":
            self._at("on_commit")

    def on_attempt_end(self, call: Any, attempt: Any, end: Any) -> None:
        self._at("on_attempt_end")

    def on_stream(self, call: Any, head: Any) -> Any:
        return LateTap(self)

    def on_ending(self, call: Any, outcome: Any, release: Any) -> bool:
        self._at("on_ending")
        return False

    def on_complete(self, call: Any, outcome: Any) -> None:
        self._at("on_complete")


class LateTap:
    def __init__(self, plugin: Late) -> None:
        self._plugin = plugin

    def feed(self, event: Any) -> tuple[Any, ...]:
        if b"w4 " in event.raw:
            self._plugin._at("feed")
        return (event,)

    def finish(self, outcome: Any) -> tuple[Any, ...]:
        self._plugin._at("finish")
        return ()

    def body(self, data: bytes) -> bytes:
        return data


ON_THE_WAY = ["allow", "score_workers", "on_chosen"]
BEHIND_IT = ["feed", "on_ending", "finish", "on_commit", "on_attempt_end", "on_complete"]


async def answered(phase: str, *engines: Engine) -> tuple[bytes, bool]:
    plugins = PLUGINS.replace("]", f", 'test_rescue_cases:Late': {{phase: {phase}}}]")
    async with losing(*engines, plugins=plugins) as scene:
        client = await scene.begin(ASK)
        answer = await client.read_answer()
        assert answer.raw_body.count(b"HTTP/1.1") == 0
        await scene.outcome()
        return answer.body, answer.complete


@pytest.mark.parametrize("phase", ON_THE_WAY)
@pytest.mark.parametrize("fate", ["fin", "killed"])
def test_UPD_04_a_plugin_fails_on_the_way(phase: str, fate: str) -> None:
    """Nobody goes on with the stream: it ends as it would have."""

    async def body() -> None:
        told, complete = await answered(phase, Engine(fate), Engine())
        assert text_of(told) == "w1 w2 "
        assert len(errors_of(told)) == 1
        assert not complete
        assert b"[DONE]" not in told

    run(body())


@pytest.mark.parametrize("phase", BEHIND_IT)
@pytest.mark.parametrize("fate", ["fin", "killed"])
def test_UPD_04_a_plugin_fails_when_the_stream_has_gone_on(phase: str, fate: str) -> None:
    """The client reads what it would have read without a loss."""

    async def body() -> None:
        lost = await answered(phase, Engine(fate), Engine())
        assert lost == await answered(phase, Engine(), Engine())

    run(body())
