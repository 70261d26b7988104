"""A plugin that failed in a phase: counted, named in the log with the request, and what becomes of the call.

Whoever calls a phase catches what it raises and comes here, so that nothing is paid while plugins work. With
`on_error: open` the call goes on as if the plugin had not been asked; otherwise it ends with a fault.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from tailrace.proxy.fault import INTERNAL, Failed, Fault, Reject

if TYPE_CHECKING:
    from tailrace.proxy.call import Call
    from tailrace.proxy.pipeline import Link

log: Final = logging.getLogger("tailrace")


def go_on_without(call: Call, link: Link, phase: str, error: BaseException, otherwise: Fault = INTERNAL) -> None:
    """Return where the call may go on; else raise, what was no failure as it is."""
    if isinstance(error, Reject | Failed):
        raise error
    note(call, link.name, phase, error)
    if not link.open_on_error:
        raise Failed(otherwise) from error


def note(call: Call, name: str, phase: str, error: BaseException) -> None:
    """Count a failure and log it."""
    call.client.service.plugin_failed(name)
    log.error("plugin '%s' failed in %s of request %s", name, phase, call.id, exc_info=error)
