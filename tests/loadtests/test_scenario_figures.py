"""From what was seen to figures and verdicts."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
from openloop.record import Outcome
from openloop.schedule import NS
from scenario.bars import Verdict, judge
from scenario.calm import Answers
from scenario.capacity import keep, key, known
from scenario.figures import Seen
from scenario.plan import FIGURES, Bar, Event, Fleet, Limit, Load, Phase, Scenario
from scenario.play import Report
from scenario.shot import Heard, Shot
from scenario.volley import Volley, acts_of

MS = 1_000_000
RIGHT = Heard("yes", "length", (3, 210))
KILL = Event(after=1, do="kill")
PHASES = (
    Phase(name="steady", seconds=10, load={"chat": 1.0}),
    Phase(name="kill", seconds=10, load={"chat": 1.0}, window=(-1, 2), events=(KILL,)),
)
SCENARIO = Scenario(about="", load={"chat": Load(budget_ms=100)}, phases=PHASES, bars=())


def shot(act: int, at_ms: float, ttft_ms: float = 50, **changed: object) -> Shot:
    """A good answer, but for what is changed; `at_ms` counts from the start of the act."""
    due = act * 10 * NS + round(at_ms * MS)
    made = Shot(0, act, True, due, 0, 210, load="chat", pieces=["yes"], reason="length", usage=(3, 210), ids={"a"})
    made.contents.append(due + round(ttft_ms * MS))
    made.finish(Outcome.OK, due + round(ttft_ms * MS) + 10 * MS)
    for name, value in changed.items():
        setattr(made, name, value)
    return made


def refusal(act: int, at_ms: float, after_ms: float) -> Shot:
    due = act * 10 * NS + round(at_ms * MS)
    made = Shot(0, act, True, due, 0, 210, load="chat", status=503, retry_after=b"1")
    made.finish(Outcome.HTTP_ERROR, due + round(after_ms * MS))
    return made


def seen(shots: Iterable[Shot], scenario: Scenario = SCENARIO) -> Seen:
    async def body() -> Volley:
        return Volley(acts_of(scenario.phases), {}, {}, 1)

    volley = asyncio.run(body())
    volley.shots = list(shots)
    volley.acts[1].struck = 11 * NS
    right: Answers = {("chat", 0): RIGHT}
    return Seen(scenario, volley, right, [], {"chat": 2.0})


def test_a_window_holds_what_was_due_around_the_event() -> None:
    it = seen([shot(1, 500), shot(1, 2900, ttft_ms=70), shot(1, 3100, ttft_ms=9000)])
    assert it.figures("kill", "")["requests"] == 2
    assert it.figures("kill", "").keys() <= set(get_args(FIGURES)), "bars may name them"
    assert it.figures("kill", "")["ttft_max_ms"] == 70
    assert it.figures("", "")["requests"] == 3


def test_refusals_in_good_order_are_no_errors() -> None:
    cut = shot(0, 2)
    cut.finish(Outcome.TRUNCATED, cut.end)
    it = seen([refusal(0, 1, after_ms=20), shot(0, 1), cut, replace(refusal(0, 2, 5), retry_after=b"")])
    figures = it.figures("steady", "chat")
    assert (figures["errors"], figures["refused"], figures["refusal_ms"]) == (2, 1, 20)
    assert dict(it.faults()) == {"truncated": 1, "http_503": 1}


def test_what_was_refused_is_held_against_what_could_not_be_carried() -> None:
    # 2 a second can be carried for 10 s: of 31 that were offered, 10 may be refused.
    it = seen([*(shot(0, 100 * n) for n in range(19)), *(refusal(0, 10, 1) for _ in range(12))])
    assert it.figures("steady", "")["refused_beyond"] == 2


def test_good_put_leaves_out_what_came_after_its_budget() -> None:
    it = seen([shot(0, 1), shot(0, 2, ttft_ms=101), shot(0, 9_990)])
    assert it.figures("steady", "")["goodput_per_s"] == 0.1


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"pieces": ["yet"]}, "text, 3 for 3 characters, first difference at 2"),
        ({"pieces": ["ye"]}, "text, 2 for 3 characters"),
        ({"reason": "stop"}, "finish_reason stop for length"),
        ({"usage": (3, 209)}, r"usage \(3, 209\) for \(3, 210\)"),
        ({"ids": {"a", "b"}}, "2 ids"),
    ],
)
def test_an_answer_that_differs_is_inexact(changed: dict[str, object], told: str) -> None:
    it = seen([shot(0, 1), shot(0, 2, **changed)])
    assert it.figures("", "")["inexact"] == 1
    [wrong] = it.wrong_samples()
    assert re.search(told, wrong)


def test_bars_are_held_against_figures_and_other_phases() -> None:
    bars = (
        Bar(figure="errors", at_most=0.0),
        Bar(figure="ttft_p99_ms", phase="kill", at_most=Limit(times=2, of="steady")),
        Bar(figure="ttft_p99_ms", phase="kill", at_most=Limit(times=2, of="steady", plus=1)),
        Bar(figure="requests", phase="kill", at_least=1.0),
        Bar(figure="last_sent_ms", phase="kill", at_most=50.0),
    )
    scenario = replace(SCENARIO, bars=bars)
    it = seen([shot(0, 1), shot(1, 500, ttft_ms=100.5)], scenario)
    verdicts = judge(scenario, it.figures)
    assert [verdict.holds for verdict in verdicts] == [True, False, True, True, False]
    assert verdicts[1].told == "MISSED  ttft_p99_ms in kill: 100.5, at most 100 (2 x that of steady)"
    assert "not measured" in verdicts[4].told


def test_capacity_is_kept_for_a_worker_of_its_kind(tmp_path: Path) -> None:
    file = tmp_path / "capacity.json"
    assert known(file, SCENARIO) is None
    keep(file, SCENARIO, {"chat": 40.0})
    assert known(file, SCENARIO) == {"chat": 40.0}
    assert known(file, replace(SCENARIO, fleet=Fleet(workers=4))) == {"chat": 20.0}
    other = replace(SCENARIO, fleet=Fleet(engine={"itl_ms": 1}))
    assert key(other, "chat") != key(SCENARIO, "chat")
    assert known(file, other) is None


@pytest.mark.parametrize(
    ("missed", "void", "status"),
    [
        ((), (), 0),
        (("ttft_p99_ms",), (), 1),
        (("ttft_p99_ms",), ("the machine was busy",), 3),
        ((), ("the machine was busy",), 3),
        (("inexact", "ttft_p99_ms"), ("the machine was busy",), 1),
        (("errors",), ("the machine was busy",), 1),
    ],
)
def test_a_busy_machine_excuses_no_wrong_answer(missed: tuple[Any, ...], void: tuple[str, ...], status: int) -> None:
    nothing: Any = None
    verdicts = [Verdict(Bar(figure=figure, at_most=0.0), 1.0, 0.0) for figure in missed]
    verdicts.append(Verdict(Bar(figure="requests", at_least=1.0), 1.0, 1.0))
    assert Report(nothing, "", nothing, verdicts, nothing, [], list(void)).status == status
