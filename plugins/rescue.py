"""Streams outlive their worker: one that dies, hangs or ends falsely is continued by another, token for token.

The work is the core's (`proxy/rescue`); this plugin says which calls it is done for, and counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final

from tailrace.plugins.rescue_streams import Streams
from tailrace.proxy.config import Above, Seconds, setting
from tailrace.proxy.plugin import Plugin

if TYPE_CHECKING:
    from tailrace.proxy.attempt import Attempt
    from tailrace.proxy.call import Call
    from tailrace.proxy.outcome import Outcome

_HINDRANCES: Final = ("request", "answer", "no_ids", "worker")
"""What may keep a stream from going on: each is counted from 0, as a counter that begins above it alarms nobody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """When a stream is given to another worker."""

    silence: Annotated[Seconds, Above(0)] = setting(
        default=5.0,
        help="for a stream without a token for this long another worker is asked, and the first to go on has it",
        why="engines that hang keep the connection open; a prefill in between takes a second or two",
    )


_Config = Config  # inside the class the name means its attribute


class Rescue(Plugin[Config]):
    """Marks the calls whose streams may go on elsewhere; raises nothing and waits for nothing.

    What it does in each phase is a method of its `streams`, compiled and called as it is.
    """

    Config = Config

    def __init__(self, config: _Config) -> None:
        super().__init__(config)
        self.streams = Streams(config.silence)

    @property
    def on_request(self) -> Callable[[Call], None]:
        """Ask for the ids of the answer's tokens, where they are of use."""
        return self.streams.mark

    @property
    def on_commit(self) -> Callable[[Call, Attempt], None]:
        """A stream goes on."""
        return self.streams.committed

    @property
    def on_complete(self) -> Callable[[Call, Outcome], None]:
        """Count the streams that broke off nevertheless, by what kept them from going on."""
        return self.streams.completed

    def metrics(self) -> Iterator[tuple[str, dict[str, str], float]]:
        """Streams that went on elsewhere, by whom they had been with and what became of it, and those that did not."""
        for (worker, why), count in self.streams.rescued.items():
            yield "streams_total", {"from": worker, "why": why}, count
        # They have been told once at least.
        self.streams.forget_the_gone()
        for why in _HINDRANCES:
            yield "lost_total", {"why": why}, self.streams.lost.get(why, 0)
