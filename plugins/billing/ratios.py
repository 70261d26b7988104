"""How many bytes of a request make a token of its prompt, learnt a model: for calls whose engine did not say."""

from __future__ import annotations

from typing import Final

_FIRST: Final = 4.0
_WEIGHT: Final = 0.02
_MOST: Final = 1024
"""Models are the operator's, but adapters come and go."""


class Ratios:
    """Averages in which the last fifty calls count most."""

    def __init__(self) -> None:
        self._bytes: dict[str, float] = {}

    def note(self, model: str, size: int, prompt: int) -> None:
        """A call of so many bytes had so many tokens."""
        if prompt <= 0 or size <= 0:
            return
        known = self._bytes.get(model)
        ratio = size / prompt
        if known is not None:
            self._bytes[model] = known + _WEIGHT * (ratio - known)
        elif len(self._bytes) < _MOST:
            self._bytes[model] = ratio

    def prompt(self, model: str, size: int) -> int:
        """The tokens that a call of so many bytes is likely to have."""
        return max(1, round(size / self._bytes.get(model, _FIRST)))
