"""What a call needs: the most it can use, what it is likely to use, and how to hold it to less."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from tailrace.plugins.quota.accounts import Account, Amounts
from tailrace.proxy.asked import TOKEN_FIELDS, choices_asked, tokens_asked
from tailrace.proxy.tariff import MILLION, Tariff

if TYPE_CHECKING:
    from tailrace.plugins.quota.estimates import Learned
    from tailrace.proxy.call import Call

_DATA: Final = b'"data:'
_MEDIUM: Final = 4096
"""Tokens for an image or another medium in a body: its bytes say nothing of them."""
_COUNTED: Final = ("tokens", "concurrent_tokens", "money")


class Demand:
    """Bounds of one call's use; `asked` is what it says its answer may have, None where it says nothing."""

    __slots__ = ("_choices", "_learned", "asked", "most", "prompt_bytes", "unnamed")

    def __init__(
        self, most: Amounts, learned: Learned | None, asked: int | None, choices: int, prompt_bytes: int, unnamed: bool
    ) -> None:
        self.most = most
        self._learned = learned
        self.asked = asked
        self._choices = choices
        self.prompt_bytes = prompt_bytes
        self.unnamed = unnamed

    def lowered(self, left: Sequence[tuple[Account, int]], tariff: Tariff | None) -> Amounts | None:
        """The most that fits into what is left of some accounts, None where what is likely does not."""
        fits = self.most.completion
        for account, room in left:
            if account.what not in _COUNTED:
                return None
            if account.what != "money":
                fits = min(fits, room - self.most.prompt)
            elif tariff is not None:
                rest = room - Amounts(self.most.prompt, 0).of("money", tariff)
                rate = tariff.rates[2]
                fits = min(fits, rest * MILLION // rate) if rate else fits if rest >= 0 else -1
        fits -= fits % self._choices
        likely = self._learned.completion(self.asked) if self._learned is not None and self.asked is not None else 0
        return Amounts(self.most.prompt, fits) if fits >= max(likely, self._choices) else None

    def bound(self, call: Call, completion: int) -> None:
        """Hold the answer to so many tokens, of all choices together."""
        fields = TOKEN_FIELDS.get(call.route.name)
        if fields is None or call.body is None:
            return
        value = b"%d" % (completion // self._choices)
        named = [field for field in fields if call.body.has(field)]
        for field in named or fields[:1]:
            call.edit(field, value)


UNCOUNTED: Final = Demand(Amounts(0, 0), None, None, 1, 0, False)
"""Where only calls are counted."""


def demand_of(call: Call, learned: Learned, unbounded: int) -> Demand:
    """The demand of a call; raises Reject(400) for fields that are no numbers."""
    route, body = call.route.name, call.body
    prompt_bytes, media = _written(call.raw)
    prompt = learned.prompt(prompt_bytes) + media * _MEDIUM
    if body is None or route not in TOKEN_FIELDS:
        return Demand(Amounts(prompt, 0), None, None, 1, prompt_bytes, False)
    choices = choices_asked(body, route)
    named = tokens_asked(body, route)
    asked = (unbounded if named is None else named) * choices
    return Demand(Amounts(prompt, asked), learned, asked, choices, prompt_bytes, named is None)


def _written(raw: bytes) -> tuple[int, int]:
    """The bytes of a body without the media in it, and how many of these there are."""
    size, media = len(raw), 0
    at = raw.find(_DATA)
    while at >= 0:
        end = raw.find(b'"', at + 1)
        if end < 0:
            break
        size -= end - at
        media += 1
        at = raw.find(_DATA, end)
    return size, media
