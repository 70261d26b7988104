"""The admit phase where a plugin has to wait, or is to be kept from waiting too long."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Final

from tailrace.proxy.fault import STEP_FAILED, Failed, Reject
from tailrace.proxy.mishap import note
from tailrace.proxy.reply import Reply

if TYPE_CHECKING:
    from tailrace.proxy.call import Call
    from tailrace.proxy.pipeline import Admission

log: Final = logging.getLogger("tailrace")
RAISED: Final = (Exception, asyncio.CancelledError)
_TOO_SLOW: Final = STEP_FAILED.but(message="A step before this request's worker took too long.")


async def admit_from(call: Call, first: int, begun: Awaitable[Reply | None] | None) -> Reply | None:
    """The rest of the list, from the plugin that has `begun` to wait, or is to be watched while it does."""
    for admission in call.chain.pipeline.on_request[first:]:
        if admission.bounded:
            reply = await _bounded(call, admission)
        else:
            try:
                reply = await _result_of(admission.on_request(call) if begun is None else begun)
            except RAISED as error:
                blame(call, admission, error)
                raise Failed(STEP_FAILED) from error
        begun = None
        if reply is not None:
            return reply
    return None


async def _result_of(given: Reply | Awaitable[Reply | None] | None) -> Reply | None:
    """What `on_request` came to, whether it had to wait or not; raises TypeError where that is no Reply."""
    if isinstance(given, Awaitable):
        given = await given
    if given is not None and not isinstance(given, Reply):
        raise TypeError(f"on_request must return a Reply or None, not {type(given).__name__}")
    return given


async def _bounded(call: Call, admission: Admission) -> Reply | None:
    """One plugin within its budget; its error or its delay counts as its `on_error` says, its edits do not count."""
    body = call.body
    link = admission.link
    before = body.snapshot() if body is not None else None
    try:
        async with asyncio.timeout(link.budget) as call.budget:
            return await _result_of(admission.on_request(call))
    except RAISED as error:
        late = isinstance(error, TimeoutError) and call.budget is not None and call.budget.expired()
        blame(call, admission, error, late=late)
    finally:
        call.budget = None
    if body is not None:
        body.restore(before)
    if link.open_on_error:
        return None
    raise Failed(_TOO_SLOW if late else STEP_FAILED)


def blame(call: Call, admission: Admission, error: BaseException, *, late: bool = False) -> None:
    """Count and log a plugin's failure; raises what is none again.

    That is a refusal, and whatever comes up while a call ends: its client has left, or it is at its limit.
    """
    if isinstance(error, Reject | Failed) or call.client.gone or call.stopped is not None:
        raise error
    if late:
        _note_delay(call, admission)
    else:
        note(call, admission.link.name, "on_request", error)


def _note_delay(call: Call, admission: Admission) -> None:
    """Count an overrun budget; a slow store overruns it with every call, so that not each is worth a line."""
    link = admission.link
    call.client.service.plugin_failed(link.name)
    if admission.overruns.due():
        log.warning(
            "plugin '%s' took longer than its budget of %g ms on request %s, which %s%s",
            link.name,
            (link.budget or 0.0) * 1000,
            call.id,
            "goes on without it" if link.open_on_error else "is refused",
            admission.overruns.more(),
        )
