"""What a rescued stream costs: the prompt once, every token of the whole answer once, what was sent and no more."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from billed import Scene, billed, cost
from fakes import PATH, chunked, json_answer, run, sending, sse_head
from lost import ASK, PROMPT, Engine, is_whole, role, token, usages
from tailrace.plugins.quota import Quota
from tailrace.plugins.quota.book import SPENT
from tailrace.proxy.ledger.record import Record
from tailrace.proxy.outcome import Ending

BEFORE = "- rescue\n- 'lost:InOrder'\n"
USAGE: dict[str, Any] = {"stream_options": {"include_usage": True}}
RUNNING: dict[str, Any] = {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}
FATES = ["rst", "half", "killed", "abort", "done", "unpaid"]


@asynccontextmanager
async def charged(folder: Path, *engines: Engine, **rest: Any) -> AsyncIterator[Scene]:
    async with billed(folder, *engines, before=BEFORE, **rest) as scene:
        yield scene


def charge(record: Record) -> tuple[Any, ...]:
    return (
        record.amount, record.prompt, record.completion, record.cached, record.requests, record.status, record.ending,
        record.estimated,
    )  # fmt: skip


@pytest.mark.parametrize("asked", [{}, USAGE, {"stop": ["never"]}, {"return_token_ids": True, **USAGE}])
@pytest.mark.parametrize("fate", FATES)
def test_it_costs_what_an_undisturbed_one_costs(tmp_path: Path, fate: str, asked: dict[str, Any]) -> None:
    async def body() -> None:
        after = 6 if fate == "unpaid" else 3
        async with charged(tmp_path, Engine(fate, after), Engine()) as scene:
            answer = await scene.client.post(PATH, {**ASK, **asked})
            assert is_whole(answer.body)
            record = await scene.record()
        assert charge(record) == (cost(3, 6), 3, 6, 0, 1, 200, Ending.COMPLETED, False)
        # What the lost engine did is lost: its prompt was computed twice.
        assert (record.lost_prompt, record.lost_completion) == (0 if fate == "unpaid" else 3, 0)

    run(body())


def test_engines_are_not_asked_for_running_usage_where_tokens_are_counted(tmp_path: Path) -> None:
    async def body() -> None:
        victim, other = Engine("fin"), Engine()
        async with charged(tmp_path, victim, other) as scene:
            await scene.client.post(PATH, ASK)
        assert victim.asked[0].json()["stream_options"] == {"include_usage": True}
        assert other.bodies("/v1/completions")[0]["stream_options"] == {"include_usage": True}

    run(body())


@pytest.mark.parametrize(
    ("engines", "delivered"),
    [
        ((Engine("hang", 1),), 1),
        ((Engine("hang", 4),), 4),
        ((Engine("fin", 2), Engine("hang", 1)), 3),
        ((Engine("killed", 2), Engine("hang", 3)), 5),
        ((Engine("fin", 2), Engine("fin", 1), Engine("hang", 2)), 5),
    ],
)
def test_a_client_that_leaves_pays_for_what_it_was_sent(
    tmp_path: Path, engines: tuple[Engine, ...], delivered: int
) -> None:
    async def body() -> None:
        async with charged(tmp_path, *engines, *[Engine()] * (2 - len(engines))) as scene:
            await scene.client.request("POST", PATH, orjson.dumps(ASK))
            await scene.client.read_until(b"w%d " % delivered)
            await scene.client.close()
            record = await scene.record()
        assert charge(record) == (cost(3, delivered), 3, delivered, 0, 1, 499, Ending.CLIENT_GONE, False)

    run(body())


def test_a_client_that_leaves_before_the_usage_pays_for_the_last_token_too(tmp_path: Path) -> None:
    async def body() -> None:
        victim = Engine()

        async def owes(conn: Any, request: Any) -> None:
            events = [role(), *[token(number, finish=number == 6) for number in range(1, 7)]]
            await conn.send(sse_head() + b"".join([chunked(event) for event in events]))
            await conn.wait_closed()

        victim.on[PATH] = owes
        async with charged(tmp_path, victim, Engine()) as scene:
            await scene.client.request("POST", PATH, orjson.dumps(ASK))
            await scene.client.read_until(b"w6 ")
            await scene.client.close()
            record = await scene.record()
        assert charge(record) == (cost(3, 6), 3, 6, 0, 1, 499, Ending.CLIENT_GONE, False)

    run(body())


def test_a_client_that_leaves_on_the_way_pays_for_what_it_was_sent(tmp_path: Path) -> None:
    async def body() -> None:
        other = Engine()

        async def hang(conn: Any, request: Any) -> None:
            await conn.wait_closed()

        other.on["/v1/completions"] = hang
        async with charged(tmp_path, Engine("fin", 2), other) as scene:
            await scene.client.request("POST", PATH, orjson.dumps(ASK))
            await scene.upstreams[1].asked(2)
            await scene.client.close()
            record = await scene.record()
        assert charge(record) == (cost(3, 2), 3, 2, 0, 1, 499, Ending.CLIENT_GONE, False)

    run(body())


@pytest.mark.parametrize(("first", "second"), [(2, 0), (2, 1), (1, 3)])
def test_one_that_is_lost_after_all_costs_what_was_sent(tmp_path: Path, first: int, second: int) -> None:
    async def body() -> None:
        refuses = sending(json_answer({"error": {"message": "no", "code": 500}}, 500))
        victim, other, third = Engine("fin", first), Engine("fin", second), Engine()
        third.on["/tokenize"] = victim.on["/tokenize"] = refuses
        if not second:
            other.on["/v1/completions"] = refuses
        async with charged(tmp_path, victim, other, third) as scene:
            answer = await scene.client.post(PATH, ASK)
            assert not answer.complete
            record = await scene.record()
        sent = first + second
        assert charge(record)[1:5] == (3, sent, 0, 1)
        assert (record.amount, record.ending, record.estimated) == (cost(3, sent), Ending.UPSTREAM_LOST, False)

    run(body())


def test_the_record_is_on_disk_before_the_end_of_a_rescued_stream(tmp_path: Path) -> None:
    async def body() -> None:
        more = ", durability: strict, strict_wait: 20s"
        async with charged(tmp_path, Engine("fin"), Engine(), more=more) as scene:
            for count in (1, 2, 3):
                answer = await scene.client.post(PATH, {**ASK, "stop": ["w4"]} if count == 2 else ASK)
                assert answer.complete
                assert len(scene.in_log()) == count
            assert [record.completion for record in scene.in_log()] == [6, 4, 6]

    run(body())


def test_usage_that_a_client_asked_for_counts_on(tmp_path: Path) -> None:
    """Beside every event, as the first engine said it."""

    async def body() -> None:
        victim, other = Engine("fin"), Engine()
        async with charged(tmp_path, victim, other) as scene:
            answer = await scene.client.post(PATH, {**ASK, **RUNNING})
        told = [(each["prompt_tokens"], each["completion_tokens"]) for each in usages(answer.body)]
        assert told == [(3, 3), (3, 4), (3, 5), (3, 6), (3, 6)]
        assert len(PROMPT) == 3

    run(body())


def test_a_budget_of_tokens_counts_it_once(tmp_path: Path) -> None:
    async def body() -> None:
        quota = "- quota: {limits: [{tokens: 1000, per: day}]}\n"
        async with charged(tmp_path, Engine("fin"), Engine(), behind=quota) as scene:
            assert is_whole((await scene.client.post(PATH, ASK)).body)
            links = scene.process.service.chain.pipeline.links
            plugin = next(link.plugin for link in links if isinstance(link.plugin, Quota))
            purse = plugin._asking.purse  # type: ignore[union-attr]
            assert sum(purse._words[lease.at + SPENT] for lease in purse._leases.values()) == 9

    run(body())
