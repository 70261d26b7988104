"""Says on every answer where its time went, as `Server-Timing`; at the end of a stream too, for those who ask.

What is known when the head leaves is in the header. A client that sends `x-tailrace-timing: on` gets a comment before
the last event of its stream, which SDKs pass over, with the whole of it. Only such a stream is looked through.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tailrace.plugins.timing_telling import Telling
from tailrace.proxy.config import setting
from tailrace.proxy.plugin import Plugin

if TYPE_CHECKING:
    from tailrace.plugins.timing_telling import Closing
    from tailrace.proxy.call import Call
    from tailrace.proxy.head import Head


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """What is told to whom."""

    header: bool = setting(default=True, help="Server-Timing on every answer")
    comment: Literal["asked", "never"] = setting(
        default="asked", help="the whole of it at the end of a stream whose client sends x-tailrace-timing: on"
    )


_Config = Config  # inside the class the name means its attribute


class Timing(Plugin[Config]):
    """Stands first: what stands before it in the list works on the answer behind it."""

    Config = Config

    def __init__(self, config: _Config) -> None:
        super().__init__(config)
        self._telling = Telling(heads=config.header, comments=config.comment != "never")

    @property
    def on_answer(self) -> Callable[[Call, Head], None]:
        """Say what is known so far, in place of what a worker says of itself."""
        return self._telling.answered

    @property
    def on_stream(self) -> Callable[[Call, Head], Closing | None]:
        """Look through the stream of a client that asked."""
        return self._telling.closing
