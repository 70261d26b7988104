"""The plugin `deadline` in a gateway: who gets how much time, what workers are told, and how the end of it looks."""

from __future__ import annotations

import asyncio

import pytest
from cases.scene import CHAT, DONE, END, FINISH, ROLE, STREAM, errors_of, framed, scene, until
from cases.scripts import silent
from fakes import Connection, Request, chat_chunk, decoded, run, sse_head, yaml_for
from tailrace.proxy.config import ConfigError, render
from tailrace.proxy.outcome import AttemptEnd, Ending
from timed import WELL, WHOLE, chain, deadline_of, pass_time


def told(seen: Request) -> tuple[int | None, int | None]:
    """Milliseconds for the whole and to the first content, as a worker is told."""
    total, first = seen.header("x-tailrace-budget-ms"), seen.header("x-tailrace-ttft-ms")
    return (None if total is None else int(total)), (None if first is None else int(first))


def asked(budgets: str, body: dict, headers: dict[str, str] | None = None, *before: str) -> tuple[int | None, ...]:
    async def main():
        answer = WELL if body.get("stream") else WHOLE
        async with scene(answer, plugins=chain(budgets, *before)) as s:
            assert (await s.ask(body, headers=headers or {})).status == 200
            return told(s.upstream.requests[0])

    return run(main())


@pytest.mark.parametrize(
    ("preset", "stream", "total", "first"),
    [
        ("voice", True, 300, 120),
        ("completion", True, 180, 100),
        ("chat", True, 2500, 200),
        ("inline", True, 150, None),
        ("chat", False, 2500, None),
    ],
)
def test_presets(preset: str, stream: bool, total: int, first: int | None):
    got_total, got_first = asked(f"[{{preset: {preset}}}]", STREAM if stream else CHAT)
    assert got_total is not None
    assert total - 100 < got_total <= total
    assert (got_first is None) if first is None else (got_first is not None and first - 100 < got_first <= first)


def test_what_a_preset_holds_is_shown():
    budgets = "[{preset: chat}, {preset: inline, ttft: 50ms}, {preset: voice, total: 1s}]"
    shown = render(decoded(yaml_for("http://127.0.0.1:1", plugins=f"[deadline: {{budgets: {budgets}}}]")))
    assert [line.strip() for line in shown.splitlines() if line.startswith(("      total:", "      ttft:"))] == [
        "total: 2500ms",
        "ttft: 200ms",
        "total: 150ms",
        "ttft: 50ms",
        "total: 1s",
        "ttft: 120ms",
    ]
    again = decoded(shown)
    assert render(again) == shown


def test_the_first_budget_that_holds_counts():
    budgets = "[{route: [completions], total: 1m}, {model: [m], total: 5s}, {total: 9s}]"
    total, _ = asked(budgets, CHAT)
    assert total is not None
    assert 4000 < total <= 5000


def test_by_class():
    classes = "- service_class: {names: [interactive, batch], routes: {chat: batch}}"
    total, _ = asked("[{class: [interactive], total: 1s}, {class: [batch], total: 1m}]", CHAT, None, classes)
    assert total is not None
    assert total > 50_000


@pytest.mark.parametrize(
    ("header", "value", "expected"),
    [
        ("x-tailrace-budget-ms", "2000", (2000, 1000)),
        ("x-tailrace-budget-ms", "90000", (5000, 1000)),
        ("x-tailrace-ttft-ms", "500", (5000, 500)),
        ("x-tailrace-ttft-ms", "7000", (5000, 1000)),
        ("x-tailrace-budget-ms", "2000\r\nx-tailrace-budget-ms: 4000", (2000, 1000)),
        ("x-tailrace-budget-ms", "4000\r\nX-Tailrace-Budget-MS: 2000", (2000, 1000)),
    ],
)
def test_a_client_can_only_have_less(header: str, value: str, expected: tuple[int, int]):
    got = asked("[{total: 5s, ttft: 1s}]", STREAM, {header: value})
    for had, should in zip(got, expected, strict=True):
        assert had is not None
        assert should - 400 < had <= should


def test_a_client_without_a_budget_may_give_itself_one():
    assert asked("[]", CHAT) == (None, None)
    total, _ = asked("[]", CHAT, {"x-tailrace-budget-ms": "3000"})
    assert total is not None
    assert 2000 < total <= 3000


@pytest.mark.parametrize(
    "value",
    ["0", "-5", "soon", "1e3", "999999999", "soon\r\nx-tailrace-budget-ms: 5", "5\r\nx-tailrace-budget-ms: soon"],
)
def test_what_is_no_budget_is_said_so(value: str):
    async def main():
        async with scene(WELL, plugins=chain("[]")) as s:
            answer = await s.ask(STREAM, headers={"x-tailrace-budget-ms": value})
            assert answer.status == 400
            assert "x-tailrace-budget-ms" in answer.json()["error"]["message"]
            assert not s.upstream.requests

    run(main())


def test_workers_are_told_less_than_there_is():
    total, first = asked("[{total: 5s, ttft: 2s, stages: {model: 500ms, reserve: 1s}}]", STREAM)
    assert total is not None
    assert first is not None
    assert 3500 < total <= 4000
    assert first <= 500


async def slow_to_end(conn: Connection, request: Request) -> None:
    await conn.send(sse_head() + framed([ROLE, chat_chunk("hi")]))
    await conn.wait_closed()


@pytest.mark.parametrize(("body", "what"), [(STREAM, "ttft: 60ms"), (STREAM, "total: 60ms"), (CHAT, "total: 60ms")])
def test_a_missed_budget_is_a_504(body: dict, what: str):
    async def main():
        async with scene(silent, plugins=chain(f"[{{{what}}}]")) as s:
            answer = await s.ask(body)
            assert answer.status == 504
            assert answer.json()["error"]["code"] == "deadline_exceeded"
            assert "60 ms" in answer.json()["error"]["message"]
            assert (await s.outcome()).ending is Ending.DEADLINE
            assert s.witness.ends == [AttemptEnd.CANCELLED], "no fault of the worker's"
            await until(lambda: len(s.upstream.closed_at) == 1, "the worker goes on")

    run(main())


def test_a_stream_that_has_begun_ends_with_an_error():
    async def main():
        async with scene(slow_to_end, plugins=chain("[{total: 2m, ttft: 1m}]")) as s:
            client = await s.begin(STREAM)
            await until(lambda: deadline_of(s).keeper.forecast._trends, "no first content")
            pass_time(s, 121.0)
            answer = await client.read_answer()
            assert answer.status == 200
            assert b'"hi"' in answer.body
            assert [error["code"] for error in errors_of(answer.body)] == ["deadline_exceeded"]
            assert b"[DONE]" not in answer.body
            assert not answer.complete
            outcome = await s.outcome()
            assert (outcome.ending, outcome.status) == (Ending.DEADLINE, 504)
            await until(lambda: len(s.upstream.closed_at) == 1, "the worker goes on")
            assert list(deadline_of(s).metrics()) == [("missed_total", {"what": "total", "model": "m", "class": ""}, 1)]

    run(main())


def test_the_first_contents_limit_is_over_with_the_first_content():
    async def main():
        go = asyncio.Event()

        async def slowly(conn: Connection, request: Request) -> None:
            await conn.send(sse_head() + framed([ROLE, chat_chunk("a")]))
            await go.wait()
            await conn.send(framed([FINISH, DONE]) + END)

        async with scene(slowly, plugins=chain("[{ttft: 1m}]")) as s:
            client = await s.begin(STREAM)
            await until(lambda: deadline_of(s).keeper.forecast._trends, "no first content")
            pass_time(s, 61.0)
            go.set()
            assert (await client.read_answer()).complete
            assert (await s.outcome()).ending is Ending.COMPLETED

    run(main())


def test_a_budget_runs_while_a_call_stands_in_a_queue():
    async def main():
        release = asyncio.Event()

        async def held(conn: Connection, request: Request) -> None:
            await release.wait()
            await conn.send(WHOLE)

        async with scene(held, plugins=chain("[]") + "\n- cases.policies:Queue") as s:
            first = await s.begin(CHAT)
            await s.upstream.asked()
            answer = await s.ask(CHAT, headers={"x-tailrace-budget-ms": "60"})
            assert answer.status == 504
            assert (await s.outcome()).ending is Ending.DEADLINE
            release.set()
            assert (await first.read_answer()).status == 200
            assert len(s.upstream.requests) == 1

    run(main())


@pytest.mark.parametrize(
    ("budgets", "told"),
    [
        ("[{}]", "give a `preset`"),
        ("[{total: 1s, ttft: 2s}]", "may not be due after the end"),
        ("[{preset: voice, stages: {reserve: 200ms}}]", "nothing would be left"),
        ("[{route: [chats], total: 1s}]", "there is no route 'chats'"),
        ("[{preset: shouting}]", "shouting"),
    ],
)
def test_nonsense_is_refused(budgets: str, told: str):
    with pytest.raises(ConfigError, match=told):
        decoded(yaml_for("http://127.0.0.1:1", plugins=f"[deadline: {{budgets: {budgets}}}]"))
