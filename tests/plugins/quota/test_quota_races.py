"""Questions to a real store that are cancelled half-way, and windows that end under load on several hosts."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from fakes import run
from redis.asyncio import Redis
from tailrace.plugins.quota.authority import Authority
from tailrace.plugins.quota.book import Book
from tailrace.plugins.quota.part import Part
from tailrace.plugins.quota.purse import Purse
from tailrace.plugins.quota.spend import Spend
from tailrace.plugins.quota.store import Away, Store, StoreSettings, connected
from tailrace.plugins.quota.terms import Counter, heard
from tailrace.plugins.quota.windows import Clock, Window, window_at
from tailrace.proxy.config import Secret
from valkeys import valkey


@asynccontextmanager
async def delayed(port: int, seconds: float) -> AsyncIterator[int]:
    """A way to a server on which answers come so much later; its port."""
    writers: list[asyncio.StreamWriter] = []

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, wait: float) -> None:
        loop = asyncio.get_running_loop()
        writers.append(writer)
        try:
            while data := await reader.read(65536):
                loop.call_later(wait, writer.write, data)
        except ConnectionError:
            pass
        finally:
            writer.close()

    async def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(pass_on(reader, back, 0), pass_on(there, writer, seconds))

    server = await asyncio.start_server(meet, "127.0.0.1", 0)
    async with server:
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            for writer in writers:
                writer.close()
            await asyncio.sleep(2 * seconds)  # for what is still under way


@asynccontextmanager
async def store_at(port: int, state: Path, wait_ms: float, clock: Clock) -> AsyncIterator[Store]:
    state.mkdir(exist_ok=True)
    settings = StoreSettings(url=Secret(f"redis://127.0.0.1:{port}"), wait_ms=wait_ms)
    async with connected(settings, state, "memory", clock) as store:
        async with asyncio.timeout(10):
            while not store.up:
                await asyncio.sleep(0.005)
        yield store


def test_LIM_07_a_question_that_was_cancelled_leaves_its_answer_to_nobody(tmp_path: Path) -> None:
    clock = Clock()
    window = window_at("day", "UTC", time.time())

    def tenant(number: int) -> Counter:
        return Counter(f"tenant:t{number}/requests/day/UTC", 10_000 + number, "day", "UTC")

    async def body() -> None:
        async with (
            valkey(tmp_path) as server,
            delayed(server.port, 0.05) as port,
            store_at(port, tmp_path / "state", 1000, clock) as store,
        ):
            seen = 0

            async def ask(number: int, patience: float) -> None:
                nonlocal seen
                counter = tenant(number)
                try:
                    async with asyncio.timeout(patience):
                        given = await store.more(counter, window, 0, 1, 1)
                except (TimeoutError, Away):
                    return
                # One host and nothing held: what is given and what is left are that tenant's limit, and no other's.
                assert given.amount + given.left == counter.limit
                seen += 1

            number = 0
            while number < 1000:
                # Sixteen at once, as many as there are connections; three of four are cancelled while the answer is
                # under way.
                turn = [ask(number + at, 0.5 if at % 4 == 0 else 0.01 + 0.012 * (at % 3)) for at in range(64)]
                await asyncio.gather(*turn)
                number += 64
            assert seen > 50
            assert store.up

    run(body(), limit=60)


class Node:
    """One host with one process, on a clock set by hand."""

    def __init__(self, folder: Path, store: Store, clock: Clock, now: list[float]) -> None:
        self.book = Book.create(folder)
        self.authority = Authority(folder, clock, divided=True)
        self.part = Part(self.authority, store, Spend(None, folder))
        self.authority.join(0, self.book.path.name)
        self.purse = Purse(self.book, lambda lease, at: None, self._close, lambda: now[0])
        self.rows: dict[int, int] = defaultdict(int)

    def _close(self, at: int) -> None:
        self.authority.close(self.book.path.name, at)

    async def call(self, counter: Counter) -> bool:
        """One call of one; a row for the window that it counts in."""
        lease = self.purse.take(counter, 1, self.purse.now())
        if lease is None:
            fields = [counter.name, counter.limit, counter.per, counter.zone, counter.what, list(counter.whom)]
            wants = [[fields, 1, 1, 0]]
            [told] = await self.part.answer(0, "lease", {"book": self.book.path.name, "wants": wants})
            self.purse.hear(counter, heard(told))
            lease = self.purse.take(counter, 1, self.purse.now())
        if lease is None:
            return False
        self.rows[lease.resets] += 1
        return True

    def close(self) -> None:
        self.book.close()
        self.authority.close_books()


def test_LIM_11_three_hosts_that_cross_200_boundaries_count_each_window_once(tmp_path: Path) -> None:
    counter = Counter("tenant:t/requests/minute/UTC", 30, "minute")
    # Far enough ahead that the store keeps every window until it has been looked at.
    first = (time.time() // 60 + 10_000) * 60
    now = [1000.0]

    async def body() -> None:
        async with AsyncExitStack() as stack:
            server = await stack.enter_async_context(valkey(tmp_path))
            nodes = []
            for name in "abc":
                clock = Clock(lambda: now[0], lambda: first + now[0] - 1000.0)
                clock.agree = lambda reference: None  # type: ignore[method-assign, assignment]
                store = await stack.enter_async_context(store_at(server.port, tmp_path / name, 1000, clock))
                nodes.append(Node(tmp_path / name / "quota", store, clock, now))

            async def load(node: Node, calls: int) -> None:
                for _ in range(calls):
                    await node.call(counter)

            client = await stack.enter_async_context(Redis.from_url(f"redis://127.0.0.1:{server.port}"))
            for turn in range(200):
                now[0] = 1000.0 + 60 * turn + 59.9
                loads = [asyncio.ensure_future(load(node, 15)) for node in nodes]
                for _ in range(turn % 7):
                    await asyncio.sleep(0)
                now[0] = 1000.0 + 60 * (turn + 1)  # while they are under way
                await asyncio.gather(*loads)
            totals: dict[int, int] = defaultdict(int)
            for node in nodes:
                for ends, count in node.rows.items():
                    totals[ends] += count
            assert len(totals) >= 200
            full = 0
            for ends, count in totals.items():
                held = await client.hgetall(f"tailrace:{counter.name}:{ends - 60}")
                given = sum(int(amount) for name, amount in held.items() if name.startswith(b"="))
                assert count <= given <= counter.limit
                full += count == counter.limit
            assert full > 100
            for node in nodes:
                node.close()

    run(body(), limit=60)


def test_a_window_that_is_over_is_no_part_of_the_next(tmp_path: Path) -> None:
    async def body() -> None:
        clock = Clock()
        async with valkey(tmp_path) as server, store_at(server.port, tmp_path / "state", 1000, clock) as store:
            counter = Counter("key:k/requests/minute/UTC", 10, "minute")
            base = int(time.time()) // 60 * 60
            this, following = Window(base, base + 60), Window(base + 60, base + 120)
            assert (await store.more(counter, this, 0, 10, 10)).amount == 10
            assert (await store.more(counter, this, 10, 1, 1)).amount == 0
            assert (await store.more(counter, following, 0, 10, 10)).amount == 10

    run(body())
