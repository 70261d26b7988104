"""SSE: what a stream that simply ends must have brought (SSE-13), for every combination of what can be missing."""

from __future__ import annotations

import itertools

import pytest
from fakes import chat_chunk, run, sse_answer, sse_head
from tailrace.proxy.outcome import Ending

from cases.scene import DONE, FINISH, ROLE, STREAM, USAGE, errors_of, scene
from cases.scripts import each

TEXT = [ROLE, chat_chunk("a")]
ASKED = {**STREAM, "stream_options": {"include_usage": True}}
NEEDS = "cases.policies:NeedsUsage"
# Who wants usage: what is asked, and who stands in the chain.
WANTED = {"nobody": (STREAM, ""), "client": (ASKED, ""), "plugin": (STREAM, NEEDS), "both": (ASKED, NEEDS)}


def verdict(finish: bool, usage: bool, done: bool, wanted: bool) -> str | None:
    """What is missing of a stream whose worker ended it in good order; None where it is whole."""
    if not finish:
        return "a finish reason"
    # With `[DONE]` the engine says that this is all.
    return "the usage that was asked for" if wanted and not usage and not done else None


CASES = [
    (who, finish, usage, done)
    for who, finish, usage, done in itertools.product(WANTED, *[(True, False)] * 3)
    if finish or not usage
]


@pytest.mark.parametrize("framing", ["chunked", "in reads of their own", "until close"])
@pytest.mark.parametrize(("who", "finish", "usage", "done"), CASES)
def test_SSE_13_an_end_in_good_order(who, finish, usage, done, framing):
    asked, plugin = WANTED[who]
    pieces = TEXT + [FINISH] * finish + [USAGE] * usage + [DONE] * done
    missing = verdict(finish, usage, done, who != "nobody")

    async def until_close(conn, request):
        await conn.send(sse_head().replace(b"transfer-encoding: chunked", b"connection: close") + b"".join(pieces))
        conn.fin()

    script = {"chunked": sse_answer(pieces), "until close": until_close}.get(framing) or each(pieces)

    async def body():
        async with scene(script, plugins=f"[cases.witness:Witness, {plugin}]".replace(", ]", "]")) as s:
            answer = await s.ask(asked)
            outcome = await s.outcome()
            assert answer.complete == (missing is None)
            if missing is None:
                assert (outcome.ending, outcome.status) == (Ending.COMPLETED, 200)
            else:
                assert (outcome.ending, outcome.fault.kind) == (Ending.UPSTREAM_LOST, "false_end")
                assert missing in errors_of(answer.body)[-1]["message"]
            assert (outcome.usage is not None and not outcome.usage.estimated) == (usage and plugin != "")

    run(body())


@pytest.mark.parametrize(("last", "complete"), [("two", False), ("usage", True)])
def test_SSE_13_usage_may_come_with_the_last_finish_reason(last, complete):
    """With two choices it is the second that closes the account."""
    of = {
        "two": chat_chunk(finish="stop", index=1),
        "usage": chat_chunk(finish="stop", index=1).replace(b'"choices"', b'"usage":{"prompt_tokens":1},"choices"'),
    }

    async def body():
        async with scene(sse_answer([*TEXT, FINISH, of[last]])) as s:
            assert (await s.ask({**ASKED, "n": 2})).complete == complete

    run(body())


def judged_by(policy):
    return f"[cases.witness:Witness, cases.policies:MoveOn, cases.policies:{policy}]"


@pytest.mark.parametrize(("pieces", "asks"), [([*TEXT, FINISH, USAGE], 1), ([*TEXT, FINISH], 2)])
def test_SSE_13_what_a_policy_held_back_without_its_usage_is_asked_for_elsewhere(pieces, asks):
    whole = [*TEXT, FINISH, USAGE, DONE]

    async def body():
        async with scene(sse_answer(pieces), sse_answer(whole), plugins=judged_by("Patient")) as s:
            answer = await s.ask(ASKED)
            assert (answer.status, answer.complete) == (200, True)
            assert answer.body == b"".join(pieces if asks == 1 else whole)
            assert len(s.upstream.requests) == asks

    run(body())
