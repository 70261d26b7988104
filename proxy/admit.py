"""The admit phase: plugins meet the whole request in list order, each within its budget."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from tailrace.proxy.fault import INTERNAL, Failed, Reject, Whose
from tailrace.proxy.reply import Reply

if TYPE_CHECKING:
    from tailrace.proxy.call import Call
    from tailrace.proxy.pipeline import Admission

log: Final = logging.getLogger("tailrace")
_RAISED: Final = (Exception, asyncio.CancelledError)


async def admit(call: Call) -> Reply | None:
    """The first Reply that a plugin gives, or None when all let the call pass; raises Reject for a refusal."""
    for admission in call.chain.pipeline.on_request:
        if admission.budget is None and not admission.open_on_error:
            try:
                reply = await admission.on_request(call)
            except _RAISED as error:
                _blame(call, admission, error)
                raise Failed(INTERNAL) from error
        else:
            reply = await _bounded(call, admission)
        if reply is not None:
            return reply
    return None


async def _bounded(call: Call, admission: Admission) -> Reply | None:
    """One plugin within its budget; its error or its delay counts as its `on_error` says, its edits do not count."""
    body = call.body
    before = body.snapshot() if body is not None else None
    try:
        async with asyncio.timeout(admission.budget) as call.budget:
            return await admission.on_request(call)
    except _RAISED as error:
        why = _blame(call, admission, error)
    finally:
        call.budget = None
    if body is not None:
        body.restore(before)
    if admission.open_on_error:
        return None
    raise Reject(503, "plugin_unavailable", f"The step '{admission.name}' {why}.", retry_after=1.0, whose=Whose.GATEWAY)


def _blame(call: Call, admission: Admission, error: BaseException) -> str:
    """Count a plugin's failure and say what it was; raises what is none again.

    That is a refusal, and whatever comes up while a call ends: its client has left, or it is at its limit.
    """
    if isinstance(error, Reject | Failed) or call.client.gone or call.stopped is not None:
        raise error
    call.client.service.plugin_failed(admission.name)
    if isinstance(error, TimeoutError) and admission.budget is not None:
        return f"took longer than its budget of {admission.budget * 1000:g} ms"
    log.error("plugin '%s' failed on request %s", admission.name, call.id, exc_info=error)
    return f"failed ({type(error).__name__})"
