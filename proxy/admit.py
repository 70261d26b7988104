"""The admit phase: plugins meet the whole request in list order."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from tailrace.proxy.admit_late import RAISED, admit_from, blame
from tailrace.proxy.fault import STEP_FAILED, Failed
from tailrace.proxy.reply import Reply

if TYPE_CHECKING:
    from tailrace.proxy.call import Call

Admitted = Coroutine[Any, Any, Reply | None]


def admit(call: Call) -> Reply | Admitted | None:
    """The first Reply that a plugin gives, or None when all let the call pass; raises Reject for a refusal.

    A coroutine to the same end comes back where a plugin has to wait: most have nothing to wait for.
    """
    for index, admission in enumerate(call.chain.pipeline.on_request):
        if admission.bounded:
            return admit_from(call, index, None)
        try:
            reply = admission.on_request(call)
        except RAISED as error:
            blame(call, admission, error)
            raise Failed(STEP_FAILED) from error
        if reply is not None:
            return reply if isinstance(reply, Reply) else admit_from(call, index, reply)
    return None
