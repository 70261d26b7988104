"""One call's record while it is open: what it has used so far is set down as its client gets it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tailrace.proxy.ledger.ring import Ring
    from tailrace.proxy.outcome import Usage

CLOSED = -1


class Account:
    """A slot of the ring, CLOSED once the record is settled or where there was no room for it.

    `guess` is the prompt's tokens for as long as the engine does not say.
    """

    __slots__ = ("_cached", "_estimated", "_prompt", "_ring", "guess", "slot")

    def __init__(self, ring: Ring, slot: int, guess: int) -> None:
        self._ring = ring
        self.slot = slot
        self.guess = guess
        self._prompt = -1
        self._cached = 0
        self._estimated = False

    def note(self, usage: Usage, taken: int) -> None:
        """The client has been sent `taken` bytes, which is so much usage."""
        slot = self.slot
        if slot < 0:
            return
        if usage.prompt == self._prompt and usage.cached == self._cached and usage.estimated == self._estimated:
            self._ring.progress(slot, usage.completion, taken)
            return
        self._prompt, self._cached, self._estimated = usage.prompt, usage.cached, usage.estimated
        prompt = usage.prompt or self.guess
        estimated = usage.estimated or not usage.prompt
        self._ring.running(slot, prompt, usage.completion, usage.cached, taken, estimated)
