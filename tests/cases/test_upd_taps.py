"""Taps: each that was opened sees one end, whatever breaks in between (UPD-04)."""

from __future__ import annotations

import asyncio

import pytest
from fakes import chat_answer, chat_chunk, json_answer, run, sse_answer, sse_head, stream_of
from tailrace.proxy.outcome import Ending

from cases.policies import PIECES
from cases.scene import CHAT, DONE, FINISH, ROLE, STREAM, errors_of, framed, scene, until
from cases.scripts import each


def chain(*plugins):
    return f"[{', '.join(plugins)}]"


def fails(phase):
    return f"{{cases.broken:Fails: {{phase: {phase}}}}}"


def pieces(**config):
    listed = ", ".join(f"{key}: {value}" for key, value in config.items())
    return f"{{cases.policies:InPieces: {{{listed}}}}}"


BOTH = "cases.witness:Tapped", "cases.witness:Editing"


def taps_of(s):
    """Every tap of a witness, of either kind."""
    return [*s.witness.watches, *s.witness.edits]


@pytest.mark.parametrize(
    ("phase", "body"),
    [
        *[("on_answer", CHAT), ("on_answer", STREAM), ("on_stream", CHAT), ("on_stream", STREAM)],
        *[("tap.body", CHAT), ("tap.first", STREAM)],
    ],
)
@pytest.mark.parametrize("witness", BOTH)
def test_UPD_04_a_tap_beside_one_that_fails_sees_one_end(witness, phase, body):
    """In the order of answers the failing plugin comes before the witness's tap, and behind it."""
    stream = body is STREAM
    script = sse_answer(stream_of(["one"])) if stream else json_answer(chat_answer("a"))

    async def main():
        for plugins in (chain(witness, fails(phase)), chain(fails(phase), witness)):
            async with scene(script, plugins=plugins) as s:
                await s.ask(body)
                outcome = await s.outcome()
                assert outcome.ending is not Ending.COMPLETED
                for tap in taps_of(s):
                    assert [each.ending for each in tap.outcomes] == [outcome.ending]
            assert taps_of(s) or plugins == chain(witness, fails(phase))

    run(main())


@pytest.mark.parametrize("witness", BOTH)
@pytest.mark.parametrize(
    ("how", "ending"), [("ends", Ending.COMPLETED), ("fails", Ending.REFUSED), ("hangs", Ending.CLIENT_GONE)]
)
def test_UPD_04_a_tap_on_a_reply_sees_its_end(witness, how, ending):
    async def main():
        async with scene(b"", plugins=chain(witness, pieces(then=how))) as s:
            if how == "hangs":
                client = await s.begin()
                await client.read_until(PIECES[0])
                await client.close()
            else:
                assert (await s.ask()).complete == (how == "ends")
            assert (await s.outcome()).ending is ending
            (tap,) = taps_of(s)
            assert [each.ending for each in tap.outcomes] == [ending]

    run(main())


@pytest.mark.parametrize("witness", BOTH)
def test_UPD_04_a_tap_on_a_reply_that_is_not_begun_sees_its_end(witness):
    """A plugin that sees the head fails after the tap was opened."""

    async def main():
        async with scene(b"", plugins=chain(witness, fails("on_answer"), pieces())) as s:
            assert (await s.ask()).status == 500
            await until(lambda: taps_of(s), "a tap")
            (tap,) = taps_of(s)
            assert [each.ending for each in tap.outcomes] == [Ending.REFUSED]

    run(main())


BEAT = b": heartbeat\n\n"


def test_SSE_08_heartbeats_while_an_edit_holds_text_back():
    """The worker talks all the time; what the client hears counts. Nothing cuts into what comes out at the end."""
    pieces = [ROLE, *[chat_chunk(str(number)) for number in range(40)], FINISH, DONE]

    async def main():
        async with scene(each(pieces, 0.05), plugins="[cases.witness:Holding]", more="heartbeat: 0.2") as s:
            answer = await s.ask()
            beats = answer.body.count(BEAT)
            assert 2 <= beats <= 10
            assert (answer.body, answer.complete) == (BEAT * beats + b"".join(pieces), True)

    run(main())


def test_SSE_08_no_heartbeats_while_an_edit_passes_text_on():
    pieces = [ROLE, *[chat_chunk(str(number)) for number in range(20)], FINISH, DONE]

    async def main():
        async with scene(each(pieces, 0.05), plugins="[cases.witness:Editing]", more="heartbeat: 0.5") as s:
            answer = await s.ask()
            assert (answer.body, answer.complete) == (b"".join(pieces), True)

    run(main())


def test_SSE_08_an_edit_keeps_the_client_between_events():
    """The worker's connection is lost inside an event, of which the client has seen nothing: it can be told."""

    async def dying(conn, request):
        await conn.send(sse_head() + framed([ROLE, chat_chunk("a"), chat_chunk("b")[:30]]))
        await asyncio.sleep(0.05)
        conn.rst()

    async def main():
        async with scene(dying, plugins="[cases.witness:Editing]") as s:
            answer = await s.ask()
            assert not answer.complete
            assert answer.body.startswith(ROLE + chat_chunk("a"))
            assert len(errors_of(answer.body)) == 1

    run(main())
