"""USE: rows that reach where they are kept exactly once, whatever fails on the way there."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from billed import PRICES, billed, cost, stream, unary
from fakes import CHAT, PATH, RawClient, Upstream, run, sse_answer, until, yaml_for
from postgres import Postgres, postgres
from served import engine, serving
from tailrace.proxy.ledger.record import Record
from tailrace.proxy.ledger.segments import FOLDER
from tailrace.proxy.ledger.sinks import sink_of
from tailrace.proxy.ledger.sinks.postgres import PostgresSink
from tailrace.proxy.ledger.sinks.sink import Down
from tailrace.proxy.ledger.sinks.sqlite import SqliteSink
from tailrace.proxy.ledger.sums import in_log

from cases.scene import STREAM

EVER = 2**63 - 1
CALLS = 6


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with postgres() as running:
        yield running


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str | None:
    return request.getfixturevalue("server").url if request.param == "postgres" else None


def rows(url: str | None, state: Path, keys: set[str]) -> list[Record]:
    """What the sink has of these calls, as often as it has it."""
    sink = sink_of(url, state)
    try:
        return [record for record in sink.records(0, EVER) if record.call in keys]
    except Down:
        return []
    finally:
        sink.close()


def logged(state: Path) -> set[str]:
    """The calls of the log."""
    return {record.call for record in in_log(state / FOLDER, 0, EVER)}


def to_sink(url: str | None) -> str:
    return f", sink: '{url}'" if url else ""


async def ask(client: RawClient, count: int = CALLS) -> None:
    for number in range(count):
        got = await client.post(PATH, STREAM if number % 2 else CHAT)
        assert (got.status, got.complete) == (200, True)


async def arrived(url: str | None, state: Path, count: int) -> list[Record]:
    """The rows when there are so many; none of them is there twice, nor comes a moment later."""
    async with asyncio.timeout(20):
        while len(await asyncio.to_thread(rows, url, state, logged(state))) < count:
            await asyncio.sleep(0.05)
    await asyncio.sleep(0.3)
    found = rows(url, state, logged(state))
    assert len(found) == len({record.charge_key for record in found}) == count == len(logged(state))
    return found


SCRIPTS = [unary(9, 3), sse_answer(stream(3))] * (CALLS * 3)


def test_USE_13_a_lost_acknowledgement_doubles_nothing(
    tmp_path: Path, url: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind: type[Any] = PostgresSink if url else SqliteSink
    lost: list[int] = []

    def deaf(write: Callable[..., None]) -> Callable[..., None]:
        def written(self: Any, ledger: str, records: Sequence[Any], position: Any, head: Any) -> None:
            write(self, ledger, records, position, head)
            if len(lost) < 3:
                lost.append(len(records))
                raise Down("the connection was lost before the answer")

        return written

    for name in ("store", "take"):
        monkeypatch.setattr(kind, name, deaf(getattr(kind, name)))
    monkeypatch.setattr("tailrace.proxy.ledger.books.PERIOD", 0.05)

    async def main() -> None:
        async with billed(tmp_path, SCRIPTS, more=to_sink(url)) as scene:
            for number in range(1, 4):
                await ask(scene.client)
                found = await arrived(url, scene.state, number * CALLS)
                assert {record.amount for record in found} == {cost(9, 3)}
            assert len(lost) == 3
            await until(lambda: scene.value("troubles") == 0)

    run(main())


def test_USE_13_a_sink_that_is_down_is_caught_up_with(tmp_path: Path, server: Postgres) -> None:
    async def main() -> None:
        async with billed(tmp_path, SCRIPTS, more=to_sink(server.url)) as scene:
            await ask(scene.client)
            await arrived(server.url, scene.state, CALLS)
            await asyncio.to_thread(server.stop)
            try:
                await ask(scene.client)  # nobody waits for it
                books = scene.books
                await until(lambda: books.troubles, "no word of the sink")
                assert books.standstill == []
                assert scene.value("troubles") == 1
            finally:
                await asyncio.to_thread(server.start)
            await ask(scene.client)
            await arrived(server.url, scene.state, 3 * CALLS)
            await until(lambda: scene.value("troubles") == 0)
            assert scene.value("shipped_total") >= 3 * CALLS

    run(main(), limit=60)


@pytest.mark.parametrize("there", [True, False], ids=["sink there", "sink away"])
def test_USE_13_what_is_queued_at_the_end_is_not_lost(tmp_path: Path, server: Postgres, there: bool) -> None:
    """Shipped before the program ends or, where that cannot be, by the next."""
    url = None if there else server.url
    prices, state = tmp_path / "prices.yaml", tmp_path / "state"
    prices.write_text(PRICES)
    yaml = yaml_for(
        "WORKER",
        plugins=f"- billing: {{prices: {prices}{to_sink(url)}}}",
        more=f"state: {state}\nprocesses: 1\npre_stop: 0\n",
    )

    async def main() -> None:
        async with Upstream(engine(*SCRIPTS)) as upstream:
            text = yaml.replace("WORKER", upstream.url)
            if not there:
                await asyncio.to_thread(server.stop)
            try:
                async with serving(tmp_path, text) as it, RawClient(it.url) as client:
                    await ask(client)
                    it.signal(signal.SIGTERM)
                    assert await it.end() == 0
                assert len(logged(state)) == CALLS
                if there:
                    assert len(rows(None, state, logged(state))) == CALLS
                    return
            finally:
                if not there:
                    await asyncio.to_thread(server.start)
            async with serving(tmp_path, text):
                await arrived(url, state, CALLS)

    run(main(), limit=60)
