"""What can go wrong with a call, whose fault it is, and what may be done about it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final


class Whose(StrEnum):
    """The party a fault is counted against; only the last two lower a worker's standing."""

    CLIENT = "client"
    GATEWAY = "gateway"
    NETWORK = "network"
    ENGINE = "engine"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One failure, with all that its answer, its metric label and a retry decision need.

    `kind` comes from a fixed set and is a metric label. `sent` is False only where the worker cannot have
    seen the request: only then may the core send it again unasked. `body` is the worker's own JSON answer
    where it is worth passing on unchanged.
    """

    kind: str
    whose: Whose
    status: int
    code: str
    message: str
    param: str | None = None
    retry_after: float | None = None
    retryable: bool = False
    sent: bool = True
    headers: tuple[tuple[bytes, bytes], ...] = ()
    body: bytes | None = None
    why: str = ""
    """The bare cause, for a line of the log that names the worker itself."""

    def but(self, **changes: object) -> Fault:
        """The same fault with some fields changed."""
        return replace(self, **changes)  # type: ignore[arg-type]


class Reject(Exception):  # noqa: N818 - a refusal is an answer, not an error of the program
    """Raised by a plugin or the core to refuse a call: `raise Reject(429, "rate_limit_exceeded", "…")`.

    The status is one of an error (400 to 599), `retry_after` seconds from now; what could not be sent is a ValueError
    or a TypeError here.
    """

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        param: str | None = None,
        retry_after: float | None = None,
        whose: Whose = Whose.CLIENT,
        headers: tuple[tuple[bytes, bytes], ...] = (),
        kind: str = "refused",
    ) -> None:
        super().__init__(message)
        check_status("a Reject", status, least=400)
        if retry_after is not None:
            _check_delay(retry_after)
        self.fault = Fault(
            kind=kind,
            whose=whose,
            status=status,
            code=code,
            message=message,
            param=param,
            retry_after=retry_after,
            sent=False,
            headers=headers,
        )


def check_status(of: str, status: object, *, least: int) -> None:
    """Raise what tells a plugin's author that no answer can have this status."""
    if not isinstance(status, int):
        raise TypeError(f"the status of {of} must be a whole number, not {type(status).__name__}")
    if not least <= status <= 599:
        raise ValueError(f"the status of {of} must be from {least} to 599, not {status:d}")


def _check_delay(seconds: object) -> None:
    if not isinstance(seconds, int | float):
        raise TypeError(f"the retry_after of a Reject must be a number of seconds, not {type(seconds).__name__}")
    if not 0 <= seconds < math.inf:
        raise ValueError(f"the retry_after of a Reject must be a finite number of seconds from 0 up, not {seconds}")


class Failed(Exception):  # noqa: N818 - carries a Fault, as Reject does
    """Every attempt that was allowed has ended; `fault` is the one worth telling the client."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.message)
        self.fault = fault


INTERNAL: Final = Fault(
    kind="internal",
    whose=Whose.GATEWAY,
    status=500,
    code="internal_error",
    message="The gateway failed to handle this request; its log has the details under the request id.",
)


STEP_FAILED: Final = Fault(
    kind="internal",
    whose=Whose.GATEWAY,
    status=503,
    code="plugin_unavailable",
    message="A step before this request's worker failed; the gateway's log has the details under the request id.",
    retry_after=1.0,
    sent=False,
)
"""A plugin failed before anything was decided about the call: another gateway may fare better."""


FAILURES: Final = (Exception, asyncio.CancelledError, GeneratorExit)
"""What plugins' code may raise at the cost of its own call only; the cancellations among them are of its own making."""


def fault_of(error: BaseException) -> Fault:
    """The fault that an exception of a plugin stands for."""
    return error.fault if isinstance(error, Reject | Failed) else INTERNAL


HOP_KEY_REFUSED: Final = "Its workers do not accept the gateway's hop key: `hop_key` must be the same in both files."
"""What clients are told; the key itself is in no message."""


def connect_failed(why: str) -> Fault:
    """No connection to the worker: nothing was sent. Clients are told why, but not where workers are."""
    return Fault(
        kind="connect_failed",
        whose=Whose.NETWORK,
        status=503,
        code="worker_unreachable",
        message=f"No connection to a worker of this model ({why}).",
        retry_after=1.0,
        retryable=True,
        sent=False,
        why=f"no connection ({why})",
    )


def connection_lost(*, sent: bool) -> Fault:
    """The worker's connection ended before its answer was whole."""
    return Fault(
        kind="connection_lost",
        whose=Whose.NETWORK,
        status=502,
        code="upstream_lost",
        message="The worker's connection ended before its answer was complete.",
        retryable=True,
        sent=sent,
    )


def fallen_silent(why: str) -> Fault:
    """The worker may be gone: nothing that was due has come from it for a while."""
    message = f"The worker fell silent before its answer was complete ({why})."
    return connection_lost(sent=True).but(kind="suspect", message=message, why=f"silent ({why})")


PREEMPTED: Final = Fault(
    kind="preempted",
    whose=Whose.GATEWAY,
    status=503,
    code="gateway_overloaded",
    message="The place of this request was needed before its answer had begun.",
    retry_after=1.0,
    retryable=True,
)
"""A call that has shown nothing gave way to one of a class that goes first."""


DRAINED: Final = Fault(
    kind="drained",
    whose=Whose.GATEWAY,
    status=503,
    code="worker_drained",
    message="The worker was taken out of service before its answer was complete.",
    retry_after=1.0,
    retryable=True,
)
"""The time that a drained worker's calls were given is over."""


def bad_answer(why: str) -> Fault:
    """The worker answered with something that is no answer of this API."""
    return Fault(
        kind="bad_answer",
        whose=Whose.ENGINE,
        status=502,
        code="bad_upstream_answer",
        message=f"The worker's answer could not be used: {why}.",
        retryable=True,
    )


def false_end(why: str) -> Fault:
    """A stream that ended as if it were whole, but is not."""
    return Fault(
        kind="false_end",
        whose=Whose.ENGINE,
        status=502,
        code="upstream_incomplete",
        message=f"The worker ended its answer early: {why}.",
        retryable=True,
    )


def timed_out(kind: str, limit: float) -> Fault:
    """A limit of the `timeouts` block passed; `kind` names it."""
    return Fault(
        kind=f"{kind}_timeout",
        whose=Whose.ENGINE,
        status=504,
        code="upstream_timeout",
        message=f"The worker did not answer in time ({kind.replace('_', ' ')} limit of {round(limit, 2):g} s).",
        retryable=True,
    )


def gone_quiet(silence: float) -> Fault:
    """A stream's worker said nothing for as long as one waits where another worker could go on."""
    message = f"The worker said nothing for {round(silence, 2):g} s, the `silence` after which others are asked."
    return timed_out("gap", silence).but(message=message)


def overdue(limit: float) -> Fault:
    """The limit of the whole call passed, and no worker had a part in it."""
    message = f"The request was not answered in time (total limit of {round(limit, 2):g} s)."
    return timed_out("total", limit).but(whose=Whose.GATEWAY, message=message, sent=False)


def no_worker(model: str, retry_after: float = 1.0, *, why: str = "") -> Fault:
    """No worker of the model may take a call now; `why` is a sentence."""
    why = f" {why}" if why else ""
    return Fault(
        kind="no_worker",
        whose=Whose.GATEWAY,
        status=503,
        code="no_worker_available",
        message=f"No worker for model '{model}' can take a call now.{why}",
        retry_after=retry_after,
        sent=False,
    )


def too_large(limit: int) -> Reject:
    """A body above the limit."""
    return Reject(413, "request_too_large", f"The request body is larger than {limit} bytes.", kind="bad_request")


def most_useful(faults: Sequence[Fault]) -> Fault:
    """The fault that tells the client most: what is wrong with its request, then when to retry, then the last."""
    for fault in faults:
        if fault.whose is Whose.CLIENT:
            return fault
    for fault in faults:
        if fault.status == 429:
            return fault
    return faults[-1]
