"""A refusal or a reply that could not be sent fails where a plugin makes it, and the log says whose it was (UPD-04)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import pytest
from fakes import run
from tailrace.proxy.fault import Reject
from tailrace.proxy.plugin import Plugin
from tailrace.proxy.reply import Reply

from cases.scene import CHAT, scene


@dataclass(frozen=True)
class Nothing:
    pass


class Makes(Plugin[Nothing]):
    """Answers with what the test makes."""

    Config = Nothing
    what: Callable[[], Any]

    async def on_request(self, call):
        made = Makes.what()
        if isinstance(made, Reject):
            raise made
        return made


async def pieces():
    yield b"{}"


def refusal(**rest: Any) -> Callable[[], Reject]:
    return lambda: Reject(429, "slow_down", "Too many.", **rest)


STATUSES = [0, -1, 99, 100, 101, 199, 600, 99999, True]
WRONG = [
    *[(lambda status=status: Reject(status, "odd", "Odd."), "status of a Reject") for status in [*STATUSES, 200, 399]],
    *[(lambda status=status: Reply(status, b""), "status of a Reply") for status in STATUSES],
    *[(refusal(retry_after=each), "retry_after of a Reject") for each in (float("nan"), float("inf"), -1.0)],
]
WRONG_TYPES = [
    *[(lambda body=body: Reply(200, body), "body of a Reply") for body in ("str", ["list"], None, bytearray(b"x"))],
    (lambda: Reply(200, pieces), "body of a Reply"),
    *[(lambda status=status: Reply(status, b""), "status of a Reply") for status in ("200", 200.0, None)],
    *[(lambda status=status: Reject(status, "odd", "Odd."), "status of a Reject") for status in ("429", 429.0, None)],
    (refusal(retry_after="5"), "retry_after of a Reject"),
]
RIGHT = [
    *[(lambda status=status: Reject(status, "odd", "Odd."), status) for status in (400, 599, HTTPStatus.IM_A_TEAPOT)],
    *[(lambda status=status: Reply(status, b"{}"), status) for status in (200, 302, 599, HTTPStatus.CREATED)],
    *[(refusal(retry_after=each), 429) for each in (0, 0.2, 86400, None)],
    (lambda: Reply(200, pieces()), 200),
]


@pytest.mark.parametrize(("make", "said"), [*WRONG, *WRONG_TYPES])
def test_UPD_04_what_cannot_be_sent_cannot_be_made(make, said, caplog):
    with pytest.raises(ValueError if (make, said) in WRONG else TypeError, match=said):
        make()


@pytest.mark.parametrize("case", [WRONG[0], WRONG[-1], WRONG_TYPES[0]])
def test_UPD_04_its_plugin_has_failed(case, caplog):
    Makes.what = staticmethod(case[0])

    async def body():
        async with scene(b"", plugins=f"[cases.witness:Witness, {__name__}:Makes]") as s:
            answer = await s.ask(CHAT)
            assert (answer.status, answer.complete) == (503, True)
            assert answer.json()["error"]["code"] == "plugin_unavailable"
            assert (await s.outcome()).status == 503
        assert f"plugin '{__name__}:Makes' failed" in caplog.text
        assert case[1] in caplog.text

    run(body())


@pytest.mark.parametrize(("make", "status"), RIGHT)
def test_UPD_04_what_can_be_sent_is_sent(make, status):
    Makes.what = staticmethod(make)

    async def body():
        async with scene(b"", plugins=f"[cases.witness:Witness, {__name__}:Makes]") as s:
            answer = await s.ask(CHAT)
            assert (answer.status, answer.complete) == (status, True)

    run(body())
