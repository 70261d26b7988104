"""What a client says of kept answers: in `cache-control`, as everywhere, and in a header of the gateway's own."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tailrace.proxy.call import Call
    from tailrace.proxy.stored.answer import Answer

HEADER: Final = b"x-tailrace-cache"
PRIVATE: Final = b"x-tailrace-private"
"""By which a client says that nothing of a request is to be kept."""
_NOT_PRIVATE: Final = frozenset({b"", b"0", b"false", b"no", b"off"})
_ANY: Final = float("inf")
_MAX_AGE: Final = b"max-age="


class Wishes:
    """`reads` a kept answer, has its own `kept`; `only` a kept one will do; `wanted` though chance has a part in it.

    An answer is not to be older than `oldest` seconds.
    """

    __slots__ = ("kept", "oldest", "only", "reads", "wanted")

    def __init__(
        self,
        *,
        reads: bool = True,
        kept: bool = True,
        only: bool = False,
        wanted: bool = False,
        oldest: float = _ANY,
    ) -> None:
        self.reads = reads
        self.kept = kept
        self.only = only
        self.wanted = wanted
        self.oldest = oldest

    @property
    def none(self) -> bool:
        """Whether nothing kept is to be had to do with it."""
        return not self.reads and not self.kept

    def take(self, answer: Answer) -> bool:
        """Whether an answer is young enough."""
        return self.oldest == _ANY or time.time() - answer.made_at <= self.oldest


NOTHING: Final = Wishes()


def wishes_of(call: Call) -> Wishes:
    """The wishes in a request's head."""
    folded = call.head.folded
    control, own, private = folded.get(b"cache-control"), folded.get(HEADER), folded.get(PRIVATE)
    if control is None and own is None and private is None:
        return NOTHING
    # Proxies add lines of their own, and what any of them asks for counts.
    lines = [] if control is None else call.head.all(b"cache-control")
    said = {part.strip().lower() for line in lines for part in line.split(b",")}
    wanted = (own or b"").strip().lower()
    only = b"only-if-cached" in said
    if wanted == b"off" or b"no-store" in said or (private or b"").strip().lower() not in _NOT_PRIVATE:
        return Wishes(reads=False, kept=False, only=only)
    return Wishes(reads=b"no-cache" not in said, only=only, wanted=wanted == b"on", oldest=_oldest(said))


def _oldest(said: set[bytes]) -> float:
    """The least age that any `max-age` allows."""
    ages = [part[len(_MAX_AGE) :].strip(b'"') for part in said if part.startswith(_MAX_AGE)]
    return min([float(age) for age in ages if age.isdigit()], default=_ANY)
