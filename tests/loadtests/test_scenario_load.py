"""The load of a scenario: what is sent when, to whom, and what is kept of the answers."""

from __future__ import annotations

import asyncio
from pathlib import Path

import orjson
from openloop.record import Outcome
from scenario.machine import Meter
from scenario.plan import Load, Phase
from scenario.prompts import Prompts
from scenario.scrape import added, by, grown, parse, share_above, totals
from scenario.shot import Heard, Shot
from scenario.volley import Volley, acts_of

PHASES = (
    Phase(name="warm", seconds=1, load={"chat": 1.0}, measured=False),
    Phase(name="kill", seconds=2, load={"chat": 0.5}, times=2),
)


def prompts() -> Prompts:
    return Prompts("chat", Load(prompts=4, words=10, answers=(1, 300)), "sim", 1, {"x-a": "b"})


def test_prompts_are_fixed_and_greedy() -> None:
    one, again = prompts(), prompts()
    assert [one.request(n) for n in range(4)] == [again.request(n) for n in range(4)]
    assert len({one.request(n) for n in range(4)}) == 4
    head, _, body = one.request(1).partition(b"\r\n\r\n")
    assert b"x-a: b" in head
    assert f"content-length: {len(body)}".encode() in head
    asked = orjson.loads(body)
    assert (asked["temperature"], asked["max_tokens"], asked["min_tokens"]) == (0, 300, 300)


def test_arrivals_follow_the_phases_and_the_seed_alone() -> None:
    async def due(seed: int) -> list[tuple[int, str, int]]:
        volley = Volley(acts_of(PHASES), {"chat": prompts()}, {"chat": 200.0}, seed)
        return list(volley._due)

    first, again, other = (asyncio.run(due(seed)) for seed in (1, 1, 2))
    assert first == again != other
    counts = [sum(act == n for _, _, act in first) for n in range(3)]
    assert all(140 < count < 260 for count in counts)
    assert all(0 <= at < 1e9 for at, _, act in first if act == 0)


def test_a_volley_goes_round_the_gateways_in_rotation() -> None:
    async def body() -> list[int]:
        volley = Volley(acts_of(PHASES), {}, {}, 1)
        out = {1}
        for number in range(3):
            volley.add_door("127.0.0.1:1", lambda number=number: number not in out)
        found = [volley._door() for _ in range(4)]
        out.update((0, 2))
        return found + [volley._door() for _ in range(3)]

    doors = asyncio.run(body())
    assert doors[:4] in ([0, 2, 0, 2], [2, 0, 2, 0])
    assert sorted(doors[4:]) == [0, 1, 2], "where nobody is healthy all are asked nevertheless, in turn"


def test_a_shot_keeps_what_its_client_was_told() -> None:
    shot = Shot(0, 0, True, 0, 0, 2)
    shot.hear({"id": "a", "choices": [{"delta": {"role": "assistant", "content": ""}}]})
    shot.hear({"id": "a", "choices": [{"delta": {"content": "Hel"}, "finish_reason": None}]})
    shot.hear({"id": "a", "choices": [{"delta": {"content": "lo"}, "finish_reason": "stop"}]})
    shot.hear({"id": "a", "choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2}})
    shot.finish(Outcome.OK, 1)
    assert shot.heard == Heard("Hello", "stop", (5, 2))
    assert shot.wrong(Heard("Hello", "stop", (5, 2))) == ""


PAGE = """
# HELP tailrace_attempts_total x
tailrace_attempts_total{worker="http://a",outcome="won",why="first"} 10
tailrace_attempts_total{worker="http://b",outcome="won",why="retry"} 2
tailrace_loop_stall_seconds_bucket{le="0.002"} 90
tailrace_loop_stall_seconds_bucket{le="0.005"} 98
tailrace_loop_stall_seconds_bucket{le="+Inf"} 100
tailrace_requests_active 3
"""


def test_counters_are_read_and_compared() -> None:
    page = parse(PAGE)
    assert by(page, "tailrace_attempts_total", "why") == {"first": 10, "retry": 2}
    assert share_above(page, "tailrace_loop_stall_seconds", 0.005) == 0.020000000000000018
    assert share_above({}, "tailrace_loop_stall_seconds", 0.005) is None
    twice = added([page, page])
    assert by(grown(page, twice), "tailrace_attempts_total", "why") == {"first": 10, "retry": 2}
    assert by(grown(twice, page), "tailrace_attempts_total", "why") == {"first": 10, "retry": 2}, "it began anew"
    assert totals(page) == {
        "tailrace_attempts_total{outcome=won,why=first}": 10,
        "tailrace_attempts_total{outcome=won,why=retry}": 2,
    }


def test_the_machine_is_measured_by_parts() -> None:
    meter = Meter({"own": lambda: [int(Path("/proc/self").readlink().name)]})
    meter.begin()
    sum(range(2_000_000))
    meter.end()
    use = meter.use
    assert 0 < use.own <= 1
    assert use.foreign == max(0.0, use.busy - use.own)
    assert "own" in use.told
