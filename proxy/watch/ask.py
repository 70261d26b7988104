"""A question of the gateway's own to a worker, over a connection like those that calls use."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from tailrace.proxy.awake import awake
from tailrace.proxy.fault import Fault
from tailrace.proxy.watch.asked import CLOSED, Answer, Asked, Unanswered
from tailrace.proxy.watch.feed import PATH
from tailrace.proxy.watch.subscription import End, Subscription

if TYPE_CHECKING:
    from tailrace.proxy.fleet import Worker
    from tailrace.proxy.sink import Sink
    from tailrace.proxy.upstream import UpstreamConnection


@asynccontextmanager
async def asking(
    worker: Worker, path: str, sink: Sink, connected: Callable[[], None] | None = None
) -> AsyncIterator[None]:
    """A GET over a new connection; an answer that is still coming when the block ends is cut. Raises Unanswered.

    `connected` is told when there is one.
    """
    opened: asyncio.Future[UpstreamConnection] = asyncio.get_running_loop().create_future()

    def done(connection: UpstreamConnection) -> None:
        if opened.cancelled():
            connection.close()
        else:
            opened.set_result(connection)

    def failed(fault: Fault) -> None:
        if not opened.cancelled():
            opened.set_exception(Unanswered(fault.why, unreachable=True))

    opening = worker.connections.connect(done, failed)
    try:
        connection = await opened
    except BaseException:
        opening.cancel()
        raise
    if connected is not None:
        connected()
    if connection.closed:
        raise Unanswered(CLOSED, unreachable=True)
    head = b"%b%b HTTP/1.1\r\n%baccept-encoding: identity\r\n\r\n"
    connection.send(sink, head % (worker.request_line("GET"), path.encode(), worker.headers), b"")
    try:
        yield
    finally:
        # After a whole answer the connection rests in the pool, and may carry a call by now.
        if connection.sink is sink:
            connection.release()


async def ask(worker: Worker, path: str, limit: float, connected: Callable[[], None] | None = None) -> Answer:
    """The answer to a GET within so many seconds of a connection, which has its own limit; raises Unanswered."""
    try:
        asked = Asked()
        async with asking(worker, path, asked, connected), awake(limit):
            return await asked.answer
    except TimeoutError:
        raise Unanswered(f"no answer to {path} within {limit:g} s") from None


async def read_feed(
    worker: Worker, hear: Callable[[dict[str, Any] | None], None], connected: Callable[[], None] | None = None
) -> tuple[End, str]:
    """Call `hear` with every state, and None for a sign of life, until the feed ends; gives how, and why.

    Raises Unanswered without a connection.
    """
    subscription = Subscription(hear)
    async with asking(worker, PATH, subscription, connected):
        return await subscription.end
