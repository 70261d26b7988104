"""Clients that pay, and note what they got: each call has a number of its own, which its worker says is its prompt."""

from __future__ import annotations

import asyncio
import random
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import orjson
from billed import PRICES, cost, last_usage, token, unary
from fakes import PATH, Connection, Request, chunked, event, sse_head, yaml_for
from fuzz.answers import read_all
from fuzz.peers import Client
from tailrace.proxy.ledger.record import Record

WORDS = 12
PAUSE = 0.01
_TOKEN = re.compile(rb'"content":"t(\d+) "')


async def engine_that_counts(conn: Connection, request: Request) -> None:
    """Says of each call that its prompt has as many tokens as its number; a stream brings one token a time."""
    asked = request.json()
    number = asked["seed"]
    if not asked["stream"]:
        await asyncio.sleep(PAUSE * 3)
        await conn.send(unary(number, number % 7 + 1))
        return
    await conn.send(sse_head())
    for word in range(WORDS):
        await conn.send(chunked(token(word, number)))
        await asyncio.sleep(PAUSE)
    for each in (token(WORDS, number, finish="stop"), last_usage(number, WORDS), event("[DONE]")):
        await conn.send(chunked(each))
    await conn.send(chunked(b""))


def yaml_that_bills(folder: Path, worker: str) -> str:
    """A gateway of two processes that bills."""
    prices = folder / "prices.yaml"
    prices.write_text(PRICES)
    return yaml_for(
        worker,
        plugins=f"- billing: {{prices: {prices}}}",
        more=f"state: {folder / 'state'}\nprocesses: 2\npre_stop: 0\ntimeouts: {{upstream_idle: 1}}\n",
    )


@dataclass(frozen=True, slots=True)
class Seen:
    """What a client saw of one call."""

    number: int
    stream: bool
    whole: bool
    tokens: int
    left: bool
    begun: bool

    @property
    def completion(self) -> int:
        """The tokens of the whole answer."""
        return WORDS if self.stream else self.number % 7 + 1


class Paying:
    """Clients that ask for ever, each call on a connection of its own; some leave in the middle."""

    def __init__(self, url: Callable[[], str]) -> None:
        self._url = url
        self._number = 100
        self._chance = random.Random(5)
        self.seen: list[Seen] = []
        self.over = False

    async def run(self) -> None:
        """One client after the other."""
        while not self.over:
            self._number += 1
            await self.ask(self._number, stream=self._number % 3 != 0, leaves=self._number % 7 == 0)

    async def ask(self, number: int, *, stream: bool, leaves: bool = False) -> None:
        """One call; a refused connection is none."""
        host, _, port = self._url().removeprefix("http://").partition(":")
        loop = asyncio.get_running_loop()
        try:
            _, client = await loop.create_connection(Client, host, int(port))
        except OSError:
            await asyncio.sleep(0.05)
            return
        body = orjson.dumps({"model": "m", "messages": [], "stream": stream, "seed": number})
        head = f"POST {PATH} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nconnection: close\r\n"
        await client.send([head.encode() + b"content-length: %d\r\n\r\n" % len(body) + body])
        if leaves:
            await asyncio.sleep(self._chance.uniform(0, PAUSE * WORDS))
            left = not client.closed.is_set()
            await client.leave(reset=bool(number & 1))
        else:
            left = False
            await client.listen(quiet=30.0)
        assert client.closed.is_set(), f"no end of call {number} after {client.got[-200:]!r}"
        answers = read_all(client.got)
        body = answers[0].body if answers else b""
        assert not answers or answers[0].status == 200, answers
        whole = bool(answers) and answers[0].complete
        told = [int(found) for found in _TOKEN.findall(body)]
        assert told == list(range(1, len(told) + 1))
        self.seen.append(Seen(number, stream, whole, len(told), left, bool(answers)))


def judge(seen: list[Seen], records: list[Record], kills: int) -> Counter[str]:
    """Each call that was whole is there once, at its price; one that was cut, within an event of what was seen."""
    twice = [key for key, count in Counter(record.charge_key for record in records).items() if count > 1]
    assert twice == []
    costing = [record for record in records if record.requests]
    of = {record.prompt: record for record in costing}
    assert len(of) == len(costing), "a call was charged twice"
    assert set(of) <= {each.number for each in seen}, "nobody made that call"
    kinds: Counter[str] = Counter()
    unseen = 0
    for each in seen:
        record = of.get(each.number)
        if record is not None:
            assert record.amount == cost(each.number, record.completion)
            assert not record.estimated
        if each.whole:
            kinds["whole"] += 1
            assert record is not None, each
            assert (record.completion, record.ending) == (each.completion, "completed"), (each, record)
        elif each.stream:
            kinds["cut"] += each.tokens > 0
            billed = 0 if record is None else record.completion
            # Of a client that left, what was under way counts as delivered; else one event may differ.
            assert each.tokens - 1 <= billed <= (WORDS if each.left else each.tokens + 1), (each, record)
        elif record is not None and not each.left:
            unseen += 1  # settled, and killed before it left
    assert unseen <= kills
    kinds["orphans"] = sum(record.ending == "orphan" for record in records)
    return kinds
