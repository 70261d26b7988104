"""Plugins that fail where their entry says `on_error: open`: the call goes on without them (UPD-04)."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

import pytest
from fakes import chat_answer, json_answer, run, sse_answer, stream_of
from scrape import Scrape
from tailrace.proxy.outcome import Ending
from tailrace.proxy.plugin import EXCLUDED, Plugin

from cases.scene import CHAT, STREAM, scene
from cases.scripts import WELL

PHASES = ["on_open", "on_request", "score_workers", "on_chosen", "patience", "judge", "on_answer", "on_stream"]
WELL_STREAM = sse_answer(stream_of(["one", "two"]))
REFUSED = json_answer({"error": {"message": "x"}}, 503)


def failing(phase, on_error="open"):
    return f"{{cases.broken:Fails: {{phase: {phase}}}, on_error: {on_error}}}"


def chain(*plugins):
    return f"[cases.witness:Witness, {', '.join(plugins)}]"


def noted(s, caplog, phase, plugin="cases.broken:Fails"):
    """Each failure is counted, and logged once with plugin, phase and request."""
    lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    (call,) = s.witness.calls
    assert set(lines) == {f"plugin '{plugin}' failed in {phase} of request {call.id}"}
    assert len(lines) == 1 or phase == "judge"  # which is asked about every event
    assert Scrape(s.process).value("plugin_failures_total", plugin=plugin) == len(lines)


@pytest.mark.parametrize("phase", PHASES)
def test_UPD_04_open_the_call_goes_on(phase, caplog):
    async def body():
        async with scene(WELL_STREAM, plugins=chain(failing(phase))) as s:
            answer = await s.ask(STREAM)
            assert (answer.status, answer.complete) == (200, True)
            assert b"two" in answer.body
            assert (await s.outcome()).ending is Ending.COMPLETED
            noted(s, caplog, phase)

    run(body())


@pytest.mark.parametrize("phase", ["next_target", "allow"])
def test_UPD_04_open_the_next_policy_decides(phase, caplog):
    async def body():
        async with scene(REFUSED, WELL, plugins=chain(failing(phase), "cases.policies:MoveOn")) as s:
            # The plugin of these tests objects to further attempts where it does not fail.
            assert (await s.ask(CHAT)).status == (200 if phase == "allow" else 503)
            noted(s, caplog, phase)

    run(body())


@pytest.mark.parametrize(("phase", "status"), [(phase, 503) for phase in PHASES[:2]] + [(p, 500) for p in PHASES[2:]])
def test_UPD_04_closed_says_whether_anything_was_decided(phase, status, caplog):
    async def body():
        async with scene(WELL_STREAM, plugins=chain(failing(phase, "closed"))) as s:
            answer = await s.ask(STREAM)
            assert answer.status == status
            assert not any(word in answer.body for word in (b"Fails", b"broken", b"ValueError"))
            noted(s, caplog, phase)

    run(body())


@pytest.mark.parametrize("on_error", ["open", "closed"])
@pytest.mark.parametrize(("phase", "body"), [("tap.first", STREAM), ("tap.finish", STREAM), ("tap.body", CHAT)])
def test_UPD_04_an_edit_is_never_done_without(phase, body, on_error, caplog):
    script = WELL_STREAM if body is STREAM else json_answer(chat_answer("a"))

    async def main():
        async with scene(script, plugins=chain(failing(phase, on_error))) as s:
            answer = await s.ask(body)
            assert not answer.complete or answer.status == 500
            assert (await s.outcome()).status == 500
            noted(s, caplog, phase.replace("first", "feed"))

    run(main())


@dataclass(frozen=True)
class How:
    how: str


class Watches(Plugin[How]):
    """Its watch fails as its configuration says, and hears the end all the same."""

    Config = How
    heard: list[str]

    def on_stream(self, call, head):
        Watches.heard = []
        return self

    def feed(self, data):
        Watches.heard.append("feed")
        if self.config.how == "feed":
            raise ValueError("broken")

    def finish(self, outcome):
        Watches.heard.append("finish")
        if self.config.how == "finish":
            raise ValueError("broken")


@pytest.mark.parametrize("body", [STREAM, CHAT])
@pytest.mark.parametrize("how", ["feed", "finish"])
def test_UPD_04_open_a_watch_is_done_without(how, body, caplog):
    script = WELL_STREAM if body is STREAM else json_answer(chat_answer("a"))
    name = f"{__name__}:Watches"

    async def main():
        for on_error in ("open", "closed"):
            caplog.clear()
            plugins = chain(f'{{"{name}": {{how: {how}}}, on_error: {on_error}}}', "cases.witness:Tapped")
            async with scene(script, plugins=plugins) as s:
                answer = await s.ask(body)
                outcome = await s.outcome()
                assert (outcome.ending is Ending.COMPLETED) == (on_error == "open")
                assert (answer.status == 200 and answer.complete) == (on_error == "open")
                assert Watches.heard.count("finish") == 1
                assert how == "finish" or Watches.heard.count("feed") == 1
                noted(s, caplog, f"tap.{how}", name)

    run(main())


@dataclass(frozen=True)
class What:
    """What a phase returns that it must not."""

    phase: str


class Returns(Plugin[What]):
    Config = What

    async def on_request(self, call):
        return 3 if self.config.phase == "on_request" else None

    def score_workers(self, call, candidates):
        return None if self.config.phase == "score_workers" else [1.0] * len(candidates)

    def on_stream(self, call, head):
        return Odd(self.config.phase) if self.config.phase.startswith("tap") else None


class Odd:
    """An edit whose methods return what is of no use."""

    def __init__(self, phase):
        self.phase = phase

    def feed(self, event):
        assert event.raw
        return {"tap.feed": None, "tap.event": ("data: x\n\n",)}.get(self.phase, (event,))

    def finish(self, outcome):
        return None if self.phase == "tap.finish" else ()

    def body(self, data):
        return None if self.phase == "tap.body" else data


class Passes(Plugin[How]):
    """An edit that changes nothing, behind the odd one in answer order."""

    Config = How

    def on_stream(self, call, head):
        return Odd("")


@pytest.mark.parametrize("behind", [True, False])
@pytest.mark.parametrize("phase", ["on_request", "score_workers", "tap.feed", "tap.event", "tap.finish", "tap.body"])
def test_UPD_04_who_returned_what_is_of_no_use_is_named(phase, behind, caplog):
    name = f"{__name__}:Returns"
    script = json_answer(chat_answer("a")) if phase == "tap.body" else WELL_STREAM

    async def body():
        passes = [f'{{"{__name__}:Passes": {{how: ""}}}}'] if behind else []
        async with scene(script, plugins=chain(*passes, f'{{"{name}": {{phase: {phase}}}}}')) as s:
            await s.ask(CHAT if phase == "tap.body" else STREAM)
            assert (await s.outcome()).status in (500, 503)
            noted(s, caplog, phase.replace("event", "feed"), name)

    run(body())


class Prefers(Plugin[How]):
    """Excludes a worker by its place, or fails after it has."""

    Config = How

    def score_workers(self, call, candidates):
        yield EXCLUDED
        if self.config.how == "fails":
            raise ValueError("broken")
        yield from [1.0] * (len(candidates) - 1)


def test_UPD_04_open_half_a_judgement_of_workers_is_none(caplog):
    async def body():
        plugins = chain(f'{{"{__name__}:Prefers": {{how: fails}}, on_error: open}}')
        async with scene(WELL, WELL, plugins=plugins, workers=2) as s:
            for _ in range(20):
                assert (await s.ask(CHAT)).status == 200
            assert all(upstream.requests for upstream in s.upstreams)

    run(body())


@pytest.mark.parametrize("on_error", ["open", "closed"])
def test_UPD_04_a_head_that_a_plugin_fails_on_is_told_once(on_error, caplog):
    """Its client gets a refusal, whose head the plugin fails on again; others see that head all the same."""

    async def body():
        plugins = chain(failing("on_answer", on_error), "{headers: {answer: {set: {x-seen: '1'}}}}")
        async with scene(WELL, plugins=plugins) as s:
            answer = await s.ask(CHAT)
            assert (answer.status, answer.header("x-seen")) == (200 if on_error == "open" else 500, "1")
            noted(s, caplog, "on_answer")

    run(body())


class Slow(Plugin[How]):
    """Waits for what never comes."""

    Config = How

    async def on_request(self, call):
        await asyncio.get_running_loop().create_future()


@pytest.mark.parametrize(("seconds", "lines"), [(0.0, 3), (60.0, 1)])
def test_UPD_04_overrun_budgets_are_told_now_and_then(seconds, lines, caplog):
    async def body():
        name = f"{__name__}:Slow"
        plugins = chain(f'{{"{name}": {{how: ""}}, budget_ms: 5, on_error: open}}')
        async with scene(WELL, plugins=plugins) as s:
            for admission in s.process.service.chain.pipeline.on_request:
                admission.overruns._seconds = seconds
            for _ in range(3):
                assert (await s.ask(CHAT)).status == 200
            assert Scrape(s.process).value("plugin_failures_total", plugin=name) == 3
            said = [record.getMessage() for record in caplog.records]
            assert len(said) == lines
            assert f"plugin '{name}' took longer than its budget of 5 ms on request req_" in said[0]
            assert "goes on without it" in said[0]

    run(body())
