"""Stop strings: where a text ends because of one, and how much of it may be shown before that is known."""

from __future__ import annotations


class StopStrings:
    """Watches a text grow, a token at a time, as vLLM's detokenizer does.

    As long as the text may still turn out to hold a stop string that clients are not to see, one character less than
    the longest stop string is held back. Where they are to see it nothing is. Of several that end in one token's text
    the one that ends first counts, and of those the first that was asked for.
    """

    __slots__ = ("_include", "_least", "_shown", "_stops", "text")

    def __init__(self, stops: tuple[str, ...], *, include: bool, least: int) -> None:
        self._stops = stops
        self._include = include
        self._least = least
        """So many tokens may hold a stop string and not end the text."""
        self.text = ""
        """All so far, cut where a stop string ended it."""
        self._shown = 0

    def take(self, text: str, said: int) -> str | None:
        """Add the text of token number `said`; returns the stop string that it completes, after which no more comes."""
        begun = len(self.text)
        self.text += text
        if not text or said <= self._least:
            return None
        found: tuple[int, str] | None = None
        for stop in self._stops:
            at = self.text.find(stop, max(0, begun + 1 - len(stop)))
            if at >= 0 and (found is None or at + len(stop) < found[0]):
                found = (at + len(stop), stop)
        if found is None:
            return None
        end, stop = found
        self.text = self.text[: end if self._include else end - len(stop)]
        return stop

    def show(self, *, ended: bool) -> str:
        """What may be shown now and was not before."""
        held = 0 if ended or self._include else max(map(len, self._stops)) - 1
        begun, self._shown = self._shown, max(self._shown, len(self.text) - held)
        return self.text[begun : self._shown]
