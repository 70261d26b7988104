"""What a client says of kept answers: in `cache-control`, as everywhere, and in a header of the gateway's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tailrace.proxy.call import Call

HEADER: Final = b"x-tailrace-cache"


class Wishes:
    """`reads` a kept answer, has its own `kept`; `only` a kept one will do; `wanted` though chance has a part in it."""

    __slots__ = ("kept", "only", "reads", "wanted")

    def __init__(self, *, reads: bool = True, kept: bool = True, only: bool = False, wanted: bool = False) -> None:
        self.reads = reads
        self.kept = kept
        self.only = only
        self.wanted = wanted

    @property
    def none(self) -> bool:
        """Whether nothing kept is to be had to do with it."""
        return not self.reads and not self.kept


NOTHING: Final = Wishes()
_NONE: Final = Wishes(reads=False, kept=False)


def wishes_of(call: Call) -> Wishes:
    """The wishes in a request's head."""
    folded = call.head.folded
    control, own = folded.get(b"cache-control"), folded.get(HEADER)
    if control is None and own is None:
        return NOTHING
    said = set() if control is None else {part.strip().lower() for part in control.split(b",")}
    wanted = (own or b"").strip().lower()
    if wanted == b"off" or b"no-store" in said:
        return _NONE
    return Wishes(reads=b"no-cache" not in said, only=b"only-if-cached" in said, wanted=wanted == b"on")
