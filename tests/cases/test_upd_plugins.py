"""Plugins that fail, in every phase: one status line, an honest end, nothing held (UPD-04)."""

from __future__ import annotations

import asyncio

import pytest
from fakes import chat_answer, json_answer, run
from tailrace.proxy.outcome import AttemptEnd, Ending

from cases.broken import RAISED
from cases.scene import (
    CHAT,
    END,
    STREAM,
    scene,
)
from cases.scripts import endless, silent, slowly

BEFORE = ["on_open", "on_request", "score_workers", "on_chosen", "patience", "judge", "on_answer", "on_stream"]
AFTER = ["tap.first", "tap.feed", "tap.finish"]
FAILURES = ["ValueError", "CancelledError", "GeneratorExit"]
HARMLESS = ["on_attempt_end", "on_complete"]


async def status_lines(scene, body):
    """Everything that one connection gets for a call; it must hold one status line."""
    client = await scene.begin(body)
    await client.send(b"")
    data = await client.read_until_close()
    assert data.count(b"HTTP/1.1 ") == 1, data
    return data


@pytest.mark.parametrize("error", RAISED)
@pytest.mark.parametrize("phase", BEFORE)
def test_UPD_04_plugin_fails_before_the_answer(phase, error):
    """Cancellations of a plugin's own making are failures of the plugin."""
    config = f"{{phase: {phase}, error: {error}}}"

    async def body():
        async with scene(endless, plugins=f"[cases.witness:Witness, {{cases.broken:Fails: {config}}}]") as s:
            for count in (1, 2):
                answer = await s.ask(CHAT if phase == "on_stream" else STREAM)
                admission = phase == "on_open" or (phase == "on_request" and error != "GeneratorExit")
                failed = 503 if admission else 500
                assert answer.status == (418 if error.startswith("Re") else failed)
                assert answer.complete
                assert (await s.outcome(count)).status == answer.status
                await s.at_rest()

    run(body())


@pytest.mark.parametrize("error", FAILURES)
@pytest.mark.parametrize("phase", AFTER)
def test_UPD_04_plugin_fails_after_the_head(phase, error):
    async def body():
        async with scene(
            slowly, plugins=f"[cases.witness:Witness, {{cases.broken:Fails: {{phase: {phase}, error: {error}}}}}]"
        ) as s:
            data = await status_lines(s, STREAM)
            assert not data.endswith(END)
            # Behind [DONE] no event would be read.
            assert (b'"internal_error"' in data) == (phase != "tap.finish")
            outcome = await s.outcome()
            assert (outcome.ending, outcome.status) == (Ending.FAILED, 500)
            assert s.witness.ends == [AttemptEnd.FAILED]

    run(body())


@pytest.mark.parametrize("error", FAILURES)
@pytest.mark.parametrize("phase", HARMLESS)
def test_UPD_04_failing_listener_changes_nothing(phase, error):
    async def body():
        async with scene(
            json_answer({"error": {"message": "x"}}, 500),
            slowly,
            plugins=f"[cases.witness:Witness, {{cases.broken:Fails: {{phase: {phase}, error: {error}}}}}]",
        ) as s:
            assert (await s.ask()).status == 500
            answer = await s.ask()
            assert answer.complete
            assert (await s.outcome(2)).ending is Ending.COMPLETED
            assert s.witness.ends == [AttemptEnd.FAILED, AttemptEnd.WON]

    run(body())


@pytest.mark.parametrize("phase", ["next_target", "allow"])
def test_UPD_04_failing_policy_ends_the_call(phase):
    plugins = f"[cases.witness:Witness, {{cases.broken:Fails: {{phase: {phase}}}}}, cases.policies:MoveOn]"

    async def body():
        async with scene(json_answer({"error": {"message": "x"}}, 503), plugins=plugins) as s:
            answer = await s.ask()
            assert answer.status == 500
            assert s.witness.ends == [AttemptEnd.FAILED]

    run(body())


@pytest.mark.parametrize("error", FAILURES)
@pytest.mark.parametrize("phase", ["tap.body"])
def test_UPD_04_plugin_fails_on_a_whole_answer(phase, error):
    async def body():
        async with scene(
            json_answer(chat_answer("a")),
            plugins=f"[cases.witness:Witness, {{cases.broken:Fails: {{phase: {phase}, error: {error}}}}}]",
        ) as s:
            assert (await s.ask(CHAT)).status == 500
            assert (await s.outcome()).status == 500

    run(body())


@pytest.mark.parametrize("reject", [False, True])
@pytest.mark.parametrize("waits", ["cases.policies:MoveOn", "{cases.policies:Replies: {kind: events late}}"])
def test_UPD_04_plugin_fails_at_a_heartbeat(waits, reject):
    """While a worker or a plugin is waited for; more calls than there are lanes, so that several share one."""
    failing = f"{{cases.broken:Fails: {{phase: on_answer, reject: {str(reject).lower()}}}}}"
    plugins = f"[cases.witness:Witness, {failing}, {waits}]"

    async def body():
        async with scene(silent, plugins=plugins, more="heartbeat: 0.1") as s:
            for answer in await asyncio.gather(*[s.ask() for _ in range(10)]):
                assert answer.status == (418 if reject else 500)
                assert answer.complete
            assert {outcome.ending for outcome in s.witness.outcomes} == {Ending.REFUSED}
            assert len(s.witness.outcomes) == 10

    run(body())
