"""How a call ended, what it used and how long its stages took."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from tailrace.proxy.fault import Fault

if TYPE_CHECKING:
    from tailrace.proxy.stages import Stages


class Ending(StrEnum):
    """The terminal states of a call; also a metric label."""

    COMPLETED = "completed"
    CLIENT_GONE = "client_gone"
    UPSTREAM_LOST = "upstream_lost"
    DEADLINE = "deadline"
    REFUSED = "refused"
    FAILED = "failed"


@dataclass(slots=True, init=False)
class Usage:
    """Tokens as the engine reported them; `cached` are some of the prompt's.

    `estimated` says that the completion was counted here by the pieces of a stream, or that the prompt, if it is 0, was
    never reported.
    """

    prompt: int
    completion: int
    cached: int
    estimated: bool

    # By hand, as the one that `dataclass` writes is not compiled.
    def __init__(self, prompt: int = 0, completion: int = 0, cached: int = 0, estimated: bool = False) -> None:
        self.prompt = prompt
        self.completion = completion
        self.cached = cached
        self.estimated = estimated


class AttemptEnd(StrEnum):
    """How one attempt ended; also a metric label."""

    WON = "won"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Outcome:
    """The one terminal record of a call, handed to every `on_complete`.

    `status` is what the client saw or, in a stream that had already begun, what it would have seen. `delivered_bytes`
    is how much of the body was handed to the kernel, its framing included.
    """

    __slots__ = ("delivered_bytes", "ending", "fault", "finished_ns", "first_content_ns", "stages", "status", "usage")

    def __init__(self, ending: Ending, status: int, fault: Fault | None = None) -> None:
        self.ending = ending
        self.status = status
        self.fault = fault
        self.usage: Usage | None = None
        self.delivered_bytes = 0
        self.first_content_ns = 0
        self.finished_ns = 0
        self.stages: Stages | None = None
        """Counted when all else is known, behind every `on_complete`; None where no worker was asked."""

    @property
    def failed(self) -> bool:
        """Whether the call went wrong, and not by what its client had asked or done."""
        ending = self.ending
        return self.status >= 500 or (
            ending is not Ending.COMPLETED and ending is not Ending.REFUSED and ending is not Ending.CLIENT_GONE
        )
