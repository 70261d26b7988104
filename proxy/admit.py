"""The admit phase: plugins meet the whole request in list order, each within its budget."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from tailrace.proxy.fault import Reject, Whose
from tailrace.proxy.reply import Reply

if TYPE_CHECKING:
    from tailrace.proxy.call import Call
    from tailrace.proxy.pipeline import Admission

log: Final = logging.getLogger("tailrace")


async def admit(call: Call) -> Reply | None:
    """The first Reply that a plugin gives, or None when all let the call pass; raises Reject for a refusal."""
    for admission in call.chain.pipeline.on_request:
        if admission.budget is None and not admission.open_on_error:
            reply = await admission.on_request(call)
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
    except Reject:
        raise
    except TimeoutError:
        why = f"took longer than its budget of {(admission.budget or 0) * 1000:g} ms"
    except Exception as error:
        log.exception("plugin '%s' failed on request %s", admission.name, call.id)
        why = f"failed ({type(error).__name__})"
    finally:
        call.budget = None
    if body is not None and before is not None:
        body.restore(before)
    call.client.service.plugin_failed(admission.name)
    if admission.open_on_error:
        return None
    raise Reject(503, "plugin_unavailable", f"The step '{admission.name}' {why}.", retry_after=1.0, whose=Whose.GATEWAY)
