"""The numbers of a record that are known at its end."""

from __future__ import annotations

from typing import Final

_LARGEST: Final = 2**63 - 1


class Settled:
    """The numbers of an ended call; `amount` and `lost_amount` are nano-units of the currency.

    `lost_…` is what attempts used that lost against the one that was shown: it is our cost, not the tenant's.
    """

    __slots__ = (
        "amount", "cached", "completion", "delivered", "estimated", "lost_amount", "lost_completion", "lost_prompt",
        "prompt", "requests", "status",
    )  # fmt: skip

    def __init__(
        self,
        *,
        amount: int = 0,
        status: int = 0,
        prompt: int = 0,
        cached: int = 0,
        completion: int = 0,
        requests: int = 1,
        delivered: int = 0,
        lost_prompt: int = 0,
        lost_completion: int = 0,
        lost_amount: int = 0,
        estimated: bool = False,
    ) -> None:
        self.amount = amount
        self.status = status
        self.prompt = prompt
        self.cached = cached
        self.completion = completion
        self.requests = requests
        self.delivered = delivered
        self.lost_prompt = lost_prompt
        self.lost_completion = lost_completion
        self.lost_amount = lost_amount
        self.estimated = estimated

    def bounded(self) -> Settled:
        """The same as far as 64 bits go; such numbers are nonsense of an engine, so it says that it is an estimate."""
        return Settled(
            amount=bounded(self.amount),
            status=bounded(self.status),
            prompt=bounded(self.prompt),
            cached=bounded(self.cached),
            completion=bounded(self.completion),
            requests=bounded(self.requests),
            delivered=bounded(self.delivered),
            lost_prompt=bounded(self.lost_prompt),
            lost_completion=bounded(self.lost_completion),
            lost_amount=bounded(self.lost_amount),
            estimated=True,
        )


def bounded(number: int) -> int:
    """A number as far as 64 bits go."""
    return max(-_LARGEST, min(number, _LARGEST))
