"""A plugin's answer in pieces that fails: the client is told between two events, and cut off elsewhere (UPD-04)."""

from __future__ import annotations

import pytest
from fakes import run

from cases.policies import HALF, PIECES
from cases.scene import errors_of, scene

FAILING = [
    ("events", "fails", PIECES[0], True),
    ("events", "fails inside", PIECES[0] + HALF, False),
    ("json", "fails", b'{"choices":[', False),
]


@pytest.mark.parametrize(
    ("plugin", "kind", "then", "shown", "told"),
    # What is no event stream has no events for an edit.
    [
        (plugin, *each)
        for plugin in ("Witness", "Tapped", "Editing")
        for each in FAILING
        if (plugin, each[0]) != ("Editing", "json")
    ],
)
def test_UPD_04_a_reply_fails_in_pieces(plugin, kind, then, shown, told):
    """An edit passes whole events only, so that the client never stands inside one."""
    if plugin == "Editing":
        shown, told = PIECES[0], True
    reply = f"{{cases.policies:InPieces: {{kind: {kind}, then: {then}}}}}"

    async def body():
        async with scene(b"", plugins=f"[cases.witness:{plugin}, {reply}]") as s:
            answer = await s.ask()
            assert not answer.complete
            assert answer.body.startswith(shown)
            behind = answer.body[len(shown) :]
            assert len(errors_of(behind)) == 1 if told else not behind
            assert (await s.outcome()).status == 500

    run(body())
