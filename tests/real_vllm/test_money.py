"""What is billed of a real vLLM's answers: the sums of the ledger are what the engine says that it did."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from fakes import Answer, RawClient, gateway, until
from tailrace.proxy.ledger.record import Record
from tailrace.proxy.ledger.segments import FOLDER
from tailrace.proxy.ledger.sums import in_log
from tailrace.proxy.tariff import charge

from real_vllm.engines import KEY, Vllm
from real_vllm.scene import CHAT, HELLO, run

PRICES = """
currency: EUR
prices:
  - {model: tiny, prompt: 2, cached_prompt: 0.5, completion: 8, per_request: 0.001}
  - {model: ghost, prompt: 1}
"""
RATES = (2 * 10**9, 5 * 10**8, 8 * 10**9, 10**6)
CALLS = 200
AT_ONCE = 4
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
TALK: dict[str, Any] = {"model": "tiny", "messages": HELLO, "max_tokens": 12}
TEXT: dict[str, Any] = {"model": "tiny", "prompt": "The river runs", "max_tokens": 9}
INPUT: dict[str, Any] = {"model": "tiny", "input": "Rivers?", "max_output_tokens": 10}
USAGE = {"include_usage": True}
KINDS: list[tuple[str, dict[str, Any], int]] = [
    (CHAT, TALK, 200),
    (CHAT, {**TALK, "stream": True}, 200),
    (CHAT, {**TALK, "stream": True, "stream_options": USAGE}, 200),
    (CHAT, {**TALK, "stream": True, "stream_options": {**USAGE, "continuous_usage_stats": True}}, 200),
    (CHAT, {**TALK, "n": 3}, 200),
    (CHAT, {**TALK, "n": 3, "stream": True}, 200),
    (CHAT, {**TALK, "tools": [TOOL]}, 200),
    (CHAT, {**TALK, "tools": [TOOL], "stream": True}, 200),
    (CHAT, {**TALK, "logprobs": True, "top_logprobs": 2, "stream": True}, 200),
    ("/v1/completions", TEXT, 200),
    ("/v1/completions", {**TEXT, "stream": True}, 200),
    ("/v1/completions", {**TEXT, "prompt": ["one", "two rivers"], "n": 2, "stream": True}, 200),
    ("/v1/completions", {**TEXT, "prompt": ["one", "two rivers"]}, 200),
    ("/v1/messages", TALK, 200),
    ("/v1/messages", {**TALK, "stream": True}, 200),
    ("/v1/responses", INPUT, 200),
    ("/v1/responses", {**INPUT, "stream": True}, 200),
    (CHAT, {**TALK, "max_tokens": -1}, 400),
    (CHAT, {**TALK, "model": "ghost"}, 404),
]


class Ledger:
    """A gateway that bills, before the engine."""

    def __init__(self, url: str, state: Path) -> None:
        self.url = url
        self._state = state

    async def ask(self, kind: int) -> Answer:
        """One call of a kind, on a connection of its own."""
        path, body, status = KINDS[kind]
        async with RawClient(self.url) as client:
            answer = await client.post(path, body)
        assert (answer.status, answer.complete) == (status, True), (KINDS[kind], answer.body)
        return answer

    async def records(self, count: int) -> list[Record]:
        """The whole ledger, when it has so many."""
        found: list[Record] = []

        def there() -> bool:
            found[:] = in_log(self._state / FOLDER, 0, 2**63 - 1)
            return len(found) >= count

        await until(there, "records are missing")
        assert len(found) == count
        return found


@asynccontextmanager
async def billed(engine: Vllm, folder: Path) -> AsyncIterator[Ledger]:
    (folder / "prices.yaml").write_text(PRICES)
    yaml = "\n".join(
        [
            "listen: [127.0.0.1:0]",
            f"pools: {{real: {{workers: ['{engine.url}'], api_key: {KEY}}}}}",
            "models: {tiny: {pool: real}, ghost: {pool: real}}",
            f"plugins: [billing: {{prices: {folder / 'prices.yaml'}}}]",
            f"state: {folder / 'state'}",
        ]
    )
    async with gateway(yaml) as process:
        yield Ledger(process.doors[0].shown, folder / "state")


async def counters(engine: Vllm) -> tuple[int, int]:
    """Tokens of prompts and of answers that the engine counts, once it counts no further."""
    last: tuple[int, int] | None = None
    async with aiohttp.ClientSession() as session:
        while True:
            async with session.get(engine.url + "/metrics") as response:
                lines = (await response.text()).splitlines()
            names = ("vllm:prompt_tokens_total", "vllm:generation_tokens_total")
            found = [sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name)) for name in names]
            now = int(found[0]), int(found[1])
            if now == last:
                return now
            last = now
            await asyncio.sleep(0.3)


def choices(record: Record, kind: int) -> int:
    """How often the engine reads a prompt: for each choice, of which the client pays one."""
    return int(KINDS[kind][1].get("n", 1)) if record.requests else 0


def test_the_ledger_is_what_the_engine_counts(engine: Vllm, tmp_path: Path) -> None:
    async def body() -> None:
        async with billed(engine, tmp_path) as ledger:
            before = await counters(engine)
            kinds: dict[str, int] = {}
            left = iter(range(CALLS))

            async def client() -> None:
                for number in left:
                    kind = number % len(KINDS)
                    answer = await ledger.ask(kind)
                    kinds[answer.header("x-request-id") or ""] = kind

            await asyncio.gather(*(client() for _ in range(AT_ONCE)))
            records = await ledger.records(CALLS)
            after = await counters(engine)
            for record in records:
                kind = kinds[record.call]
                well = KINDS[kind][2] == 200
                assert (record.requests, record.ending) == ((1, "completed") if well else (0, "refused")), record
                assert not record.estimated, (KINDS[kind], record)
                amount = charge(RATES, record.prompt, record.cached, record.completion, record.requests)
                assert record.amount == amount
            assert sum(record.completion for record in records) == after[1] - before[1]
            prompts = sum(record.prompt * choices(record, kinds[record.call]) for record in records)
            assert prompts == after[0] - before[0]

    run(body())


def test_each_kind_by_itself_is_what_the_engine_counts(engine: Vllm, tmp_path: Path) -> None:
    """So that nothing that is too much of one hides too little of another."""

    async def body() -> None:
        async with billed(engine, tmp_path) as ledger:
            wrong = []
            before = await counters(engine)
            for kind in range(len(KINDS)):
                await ledger.ask(kind)
                record = (await ledger.records(kind + 1))[-1]
                after = await counters(engine)
                grown = after[0] - before[0], after[1] - before[1]
                if grown != (record.prompt * choices(record, kind), record.completion):
                    wrong.append((KINDS[kind], grown, record.prompt, record.completion))
                before = after
            assert wrong == []

    run(body())
