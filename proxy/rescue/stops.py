"""Stop strings where an answer is put together from two workers: one may begin in the text of the first.

The engine's own rules are followed, for the client must not see where the seam is: text that may be the beginning of a
stop string is held back by a fixed length, and the string that is complete first counts.
"""

from __future__ import annotations

from collections.abc import Sequence


class Stops:
    """The end of an answer's text, from as far back as a stop string that is not complete may reach.

    `shown` is the text that the client has, `behind` what was made and not shown, `count` how many tokens that took.
    """

    __slots__ = ("_count", "_held", "_include", "_least", "_longest", "_stops", "_text", "_unsent")

    def __init__(
        self, stops: Sequence[str], shown: str, behind: str, count: int, *, least: int = 0, include: bool = False
    ) -> None:
        self._stops = stops
        self._longest = max(map(len, stops))
        self._include = include
        self._held = 0 if include else self._longest - 1
        self._least = least
        self._count = count
        self._unsent = len(behind)
        self._text = shown[-self._longest :] + behind

    def feed(self, text: str, tokens: int, *, last: bool) -> tuple[str, str | None]:
        """What may be shown now, and the stop string that ended the answer, if one did."""
        self._count += tokens
        self._text += text
        self._unsent += len(text)
        found = self._found(len(text)) if text and self._count > self._least else None
        if found is not None:
            stop, end = found
            begin = len(self._text) - self._unsent
            return self._text[begin : max(begin, end)], stop
        return self._release(0 if last else self._held), None

    def _found(self, new: int) -> tuple[str, int] | None:
        text = self._text
        best: tuple[int, str] | None = None
        for stop in self._stops:
            at = text.find(stop, max(0, len(text) - new - len(stop) + 1))
            if at >= 0 and (best is None or at + len(stop) < best[0]):
                best = at + len(stop), stop
        if best is None:
            return None
        end, stop = best
        return stop, end if self._include else end - len(stop)

    def _release(self, held: int) -> str:
        begin = len(self._text) - self._unsent
        end = max(begin, len(self._text) - held)
        out = self._text[begin:end]
        self._unsent = len(self._text) - end
        # As much is kept as a stop string that is not complete yet may reach back.
        self._text = self._text[-max(self._longest, self._unsent) :]
        return out
