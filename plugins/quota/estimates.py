"""What a call will use, before it has used it: bounds that hold, and what calls like it have used so far.

The most that a call can use is certain: no tokenizer makes more tokens than there are bytes, and no engine more than it
was asked for. What is likely is learned by model: the tokens that a byte of prompt has made at most, and how much of
what they had asked for all but a few of the answers took.
"""

from __future__ import annotations

import math
from typing import Final

_TEMPLATE: Final = 64
"""Tokens that a chat template may add."""
_ENOUGH: Final = 20
_MARGIN: Final = 1.25
_BINS: Final = 32
_PART: Final = 0.98
_HALF: Final = 2000
_COLD: Final = 8
"""Before anything is known, an answer is given room for an eighth of what it asks, if no more is left."""


class Learned:
    """What was seen of one model's calls; recent ones weigh more."""

    __slots__ = ("_bins", "_dense", "_denser", "_prompts", "_seen")

    def __init__(self) -> None:
        self._prompts = 0
        self._dense = 0.0
        self._denser = 0.0
        self._bins = [0.0] * (_BINS + 1)
        self._seen = 0.0

    def note(self, prompt_bytes: int, prompt: int, asked: int | None, completion: int) -> None:
        """One call is over."""
        if prompt and prompt_bytes:
            density = max(0, prompt - _TEMPLATE) / prompt_bytes
            self._denser = max(self._denser, density)
            self._prompts += 1
            if self._prompts % _HALF == 0:
                self._dense, self._denser = self._denser, 0.0
        if asked:
            self._bins[min(_BINS, math.ceil(completion / asked * _BINS))] += 1
            self._seen += 1
            if self._seen >= 2 * _HALF:
                self._bins = [count / 2 for count in self._bins]
                self._seen /= 2

    def prompt(self, prompt_bytes: int) -> int:
        """The most tokens that a prompt of so many bytes makes, by all that is known."""
        if self._prompts < _ENOUGH:
            return prompt_bytes + _TEMPLATE
        density = min(1.0, max(self._dense, self._denser) * _MARGIN)
        return math.ceil(prompt_bytes * density) + _TEMPLATE

    def completion(self, asked: int) -> int:
        """The tokens that all but a few of the answers to such a request take."""
        if self._seen < _ENOUGH:
            return max(1, asked // _COLD)
        left = self._seen * _PART
        for number, count in enumerate(self._bins):
            left -= count
            if left <= 0:
                return max(1, min(asked, math.ceil(asked * number / _BINS * _MARGIN)))
        return asked


class Estimates:
    """What is learned, by model; the models that operators name are few."""

    def __init__(self) -> None:
        self._models: dict[str, Learned] = {}

    def of(self, model: str) -> Learned:
        """What is known of a model."""
        learned = self._models.get(model)
        if learned is None:
            learned = self._models[model] = Learned()
        return learned
