"""The orderly end of a process: nobody is refused while balancers learn of it, running answers get their time, and
what is still unfinished then is told so.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tailrace.proxy.fault import Fault, Whose

if TYPE_CHECKING:
    from tailrace.proxy.door import Door
    from tailrace.proxy.server import ClientConnection
    from tailrace.proxy.service import Service

log = logging.getLogger("tailrace")
LOOK = 0.05
LAST_BYTES = 1.0

SHUTTING_DOWN = Fault(
    kind="shutting_down",
    whose=Whose.GATEWAY,
    status=503,
    code="server_shutting_down",
    message="The server is shutting down and could not finish this request.",
    retry_after=1.0,
    retryable=True,
)
NEVER_SENT = SHUTTING_DOWN.but(sent=False)


async def drain(service: Service, doors: Sequence[Door], pre_stop: float, limit: float, hurry: asyncio.Event) -> None:
    """End a service; returns when its last call is over. Setting `hurry` skips what waits are left."""
    service.draining = True
    if any(door.accepting for door in doors):
        await _unless(hurry, pre_stop)
    for door in doors:
        door.close()
    if service.share is not None:
        service.share.leave()
    loop = service.loop
    end = loop.time() + limit
    while _let_go(service) and loop.time() < end and not hurry.is_set():
        await _unless(hurry, LOOK)
    if service.active:
        log.warning("%d calls are ended because the time to finish is over", service.active)
    for connection in tuple(service.connections):
        _end(connection)
    end = loop.time() + LAST_BYTES
    while service.connections and loop.time() < end:  # noqa: ASYNC110 - nobody signals the last byte
        await asyncio.sleep(LOOK)


async def _unless(hurry: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await hurry.wait()


def _let_go(service: Service) -> bool:
    """Close connections that wait for a request; whether calls are still running."""
    for connection in tuple(service.connections):
        if connection.quiet:
            connection.transport.close()
    return bool(service.active or service.listening)


def _end(connection: ClientConnection) -> None:
    """End what runs on a connection so that its client can tell."""
    call, relay = connection.call, connection.relay
    if call is None:
        connection.transport.close()
    elif relay is not None:
        call.stride.within(relay.on_fault, SHUTTING_DOWN)
    elif not call.complete:
        call.fail(SHUTTING_DOWN)
    else:
        # Whatever it waits for, a plugin's line too. One that does not let itself be ended is cut off in the end.
        call.stop(SHUTTING_DOWN if call.tries else NEVER_SENT)
