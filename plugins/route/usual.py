"""What is usual in a pool, and the sizes of calls by which it is told."""

from __future__ import annotations

from math import exp
from typing import Final

SIZES: Final = 6
ROWS: Final = 2 * SIZES
"""Sizes of prompts, for streams and for answers that come whole: those take as long as they are."""
MOST_TOKENS: Final = 65536
_BYTES: Final = 4
"""Bytes of a request for a token of its prompt."""
_FIRST_GUESS: Final = 0.03
_ONE_CALL: Final = 0.1
_ONE_END: Final = 0.02


def tokens_of(size: int) -> int:
    """About how many tokens the prompt of a request of so many bytes has."""
    return min(size // _BYTES, MOST_TOKENS) + 1


def row_of(tokens: int, stream: bool) -> int:
    """Where such calls are kept: each size is up to four times the one before, the first ends at 256 tokens."""
    row = 0
    bound = 256
    while tokens >= bound and row < SIZES - 1:
        bound *= 4
        row += 1
    return row if stream else row + SIZES


class Usual:
    """What is usual in a pool: by plain means, of the last `decay` seconds."""

    __slots__ = (
        "_at",
        "_n",
        "_reports",
        "_x",
        "_xx",
        "_xy",
        "_y",
        "alone",
        "busy",
        "decay",
        "hidden",
        "prompt",
        "slope",
        "slots",
        "waiting",
    )

    def __init__(self, decay: float) -> None:
        self.decay = decay
        self.alone = [0.0] * ROWS
        """Seconds to first content of a call that finds nothing before it; 0 is unknown."""
        self._at = [0.0] * ROWS
        self.busy = 0.0
        """Seconds that a call takes from its sending to its end; 0 is unknown."""
        self.prompt = 256.0
        """Tokens of a prompt."""
        self.hidden = 0.0
        """Calls of others that workers which say so have under way, and of them `waiting` for their turn."""
        self.waiting = 0.0
        self.slots = 0.0
        """How many calls one that does not say so was last seen to let in; 0 is unknown."""
        self._reports = 0
        # Decayed sums over calls, x the thousands of tokens up to its first content and y how long that took: their
        # slope is what a token takes. They begin with a guess of 8,000 tokens a second.
        self._n = 4.0
        self._x = 4.0
        self._y = 4.0 * (_FIRST_GUESS + 0.125)
        self._xx = 8.0
        self._xy = 4.0 * _FIRST_GUESS + 8.0 * 0.125
        self.slope = 0.125e-3
        """Seconds that a token of a prompt takes which stands before a call."""

    def alone_of(self, row: int) -> float:
        """Seconds, guessed where nothing is known yet."""
        known = self.alone[row]
        if known > 0.0:
            return known
        size = row if row < SIZES else row - SIZES
        return _FIRST_GUESS + self.slope * 128.0 * 4.0**size

    def observe(self, row: int, alone: float, now: float) -> None:
        """Take in one call."""
        known = self.alone[row]
        if known <= 0.0:
            self.alone[row] = alone
        else:
            # Where calls are few, one of them does not make what is usual.
            share = min(1.0 - exp((self._at[row] - now) / self.decay), _ONE_CALL)
            self.alone[row] = known + share * (alone - known)
        self._at[row] = now

    def fit(self, tokens: int, ahead: float, seconds: float) -> None:
        """Learn what tokens take from a call's own and those before it."""
        keep = 0.995
        x = (tokens + ahead) * 1e-3
        self.prompt += 0.01 * (tokens - self.prompt)
        self._n = n = self._n * keep + 1.0
        self._x = sum_x = self._x * keep + x
        self._y = sum_y = self._y * keep + seconds
        self._xx = self._xx * keep + x * x
        self._xy = self._xy * keep + x * seconds
        spread = n * self._xx - sum_x * sum_x
        if spread > 1e-6 * n * n:
            self.slope = min(max((n * self._xy - sum_x * sum_y) / spread, 1e-3), 2.0) * 1e-3

    def ended(self, seconds: float) -> None:
        """One call has come to its end, so long after it was sent."""
        self.busy = self.busy + _ONE_END * (seconds - self.busy) if self.busy > 0.0 else seconds

    def heard(self, hidden: float, waiting: float) -> None:
        """One worker has said what others have under way there."""
        self._reports += 1
        weight = max(0.05, 1.0 / self._reports)
        self.hidden += weight * (hidden - self.hidden)
        self.waiting += weight * (waiting - self.waiting)
