"""What tests of budgets use: a chain, answers, and a hold on the plugin's time."""

from __future__ import annotations

import asyncio
import time

from cases.scene import DONE, END, FINISH, ROLE, framed
from fakes import chat_answer, chat_chunk, json_answer, sse_head

WELL = sse_head() + framed([ROLE, chat_chunk("hi"), FINISH, DONE]) + END
WHOLE = json_answer(chat_answer("hi"))


def chain(budgets: str, *before: str, more: str = "") -> str:
    return "\n".join(["- cases.witness:Witness", *before, f"- deadline: {{budgets: {budgets}{more}}}"])


def deadline_of(s):
    return s.process.service.chain.pipeline.links[1].plugin


def pass_time(s, seconds: float) -> None:
    """Have so many seconds pass for the plugin at once."""
    keeper = deadline_of(s).keeper
    keeper.clock = keeper.alarms._clock = lambda: time.monotonic_ns() + int(seconds * 1e9)
    if keeper.alarms._timer is not None:
        keeper.alarms._timer.cancel()
        keeper.alarms._due(asyncio.get_running_loop())


def stop_time(s) -> float:
    """Have no time pass for the plugin any more; the moment in seconds."""
    now = time.monotonic_ns()
    deadline_of(s).keeper.clock = lambda: now
    return now / 1e9
