"""One upstream answer for several calls: whoever asks for what is under way already follows it.

The call that began it, the leader, relays to its own client as ever, and what passes its tap is published. Its client
may leave: the call goes on for those who follow, and ends with the last of them. What was published is kept for whoever
joins later, up to `limit` bytes. Of a longer answer nobody new gets anything, and each of those who follow may lag
behind by so much at most.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final

from tailrace.proxy.dialects import Sign
from tailrace.proxy.fault import INTERNAL, Failed, Fault, Whose
from tailrace.proxy.outcome import Ending, Outcome, Usage
from tailrace.proxy.unheard import Unheard

if TYPE_CHECKING:
    from tailrace.proxy.call import Call
    from tailrace.proxy.head import Head
    from tailrace.proxy.sse import Event

_LAGS: Final = Fault(
    kind="client_slow",
    whose=Whose.CLIENT,
    status=408,
    code="request_timeout",
    message="The answer was shared with other requests, and this client took it too slowly.",
)
_EVENTS: Final = b"text/event-stream"
TOO_LONG: Final = "too_long"


class Sharing:
    """A call's part in an answer that several have: it hears when that call is over."""

    __slots__ = ()

    def over(self, outcome: Outcome) -> None:
        """The call is over."""
        raise NotImplementedError  # abstract

    def outlives(self) -> bool:
        """Whether the call has to go on without its client."""
        return False

    def used(self) -> Usage | None:
        """What was used so far of an answer that is another call's, as far as this one had it."""
        return None


class Publication(Sharing):
    """What one call's answer is to others: an Edit that changes nothing, to be given by `on_stream` as `tap(head)`.

    An answer that never reaches the tap, or is no good one, has come to nothing for those who wait.
    """

    __slots__ = (
        "_call",
        "_first",
        "_followers",
        "_pieces",
        "_size",
        "begun",
        "ended",
        "fault",
        "limit",
        "streams",
        "usage",
        "withheld",
    )

    def __init__(self, call: Call, limit: int) -> None:
        self._call: Call | None = call
        self._followers: list[Follower] = []
        self._pieces: list[bytes] = []
        self._first = 0
        self._size = 0
        self.limit = limit
        self.begun = False
        self.streams = False
        self.withheld = ""
        """Why nobody else is to have it, in a word."""
        self.ended = False
        self.fault: Fault | None = None
        """Why it came to nothing, or broke off."""
        self.usage: Usage | None = None

    @property
    def open(self) -> bool:
        """Whether one who joins now can have all of it."""
        return not self.ended and not self.withheld

    @property
    def taken(self) -> bytes | None:
        """What was published so far, None where that is too long to be kept, or for nobody else."""
        return None if self.withheld else b"".join(self._pieces)

    def join(self, call: Call) -> Follower:
        """Another call wants this answer."""
        follower = Follower(self, call)
        call.sharing = follower
        self._followers.append(follower)
        if self._call is not None:
            self._call.client.quicken()
        return follower

    def leave(self, follower: Follower) -> None:
        """A call wants nothing more of it; with the last one goes what runs for nobody else."""
        if follower not in self._followers:
            return
        self._followers.remove(follower)
        if not self._followers and self._call is not None:
            transport = self._call.client.transport
            if isinstance(transport, Unheard):
                # The call ends in a later turn of the loop, and nobody may join it meanwhile.
                self.close()
                transport.abort()

    def outlives(self) -> bool:
        """Whether somebody follows."""
        return bool(self._followers) and not self.ended

    def close(self) -> None:
        """Give it to nobody else: those who wait have to look for another one."""
        self._end(INTERNAL)

    def withhold(self, why: str) -> None:
        """Give it to nobody else though it is a good answer: those who wait are told, and go on by themselves."""
        self.withheld = why
        self._wake()

    # The leader's tap.

    def tap(self, head: Head) -> Publication:
        """Publish an answer with this head from its first byte on."""
        self.streams = (head.get(b"content-type") or b"").startswith(_EVENTS)
        return self

    def feed(self, event: Event) -> tuple[Event, ...]:
        """One event of a stream; of an error each is told by its own call, under its own request id."""
        if event.raw.find(b'"error"') < 0 or not self._is_error(event):
            self._publish(event.raw)
        return (event,)

    def _is_error(self, event: Event) -> bool:
        dialect = None if self._call is None else self._call.route.dialect
        return dialect is not None and dialect.judge(event) is Sign.ERROR

    def body(self, data: bytes) -> bytes:
        """A whole unary answer."""
        self._publish(data)
        return data

    def finish(self, outcome: Outcome) -> tuple[Event, ...]:
        """How it ended is told by `over`."""
        return ()

    def over(self, outcome: Outcome) -> None:
        """The leader's call is over, and so is what it published."""
        self.usage = outcome.usage
        if outcome.ending is Ending.COMPLETED and self.begun:
            self._end(None)
        else:
            self._end(outcome.fault or INTERNAL)

    def _end(self, fault: Fault | None) -> None:
        self._call = None
        if not self.ended:
            self.ended = True
            self.fault = fault
            self._wake()

    def _publish(self, data: bytes) -> None:
        if self.ended:
            return
        self.begun = True
        self._pieces.append(data)
        self._size += len(data)
        if self._size > self.limit:
            self.withheld = TOO_LONG
            self._trim()
        self._wake()
        if self._call is not None:
            self._call.client.slacken(self.limit)

    def _trim(self) -> None:
        """Forget what everybody has, and whoever lags behind too far."""
        places = [follower.place for follower in self._followers if follower.live]
        self._forget(min(places, default=self._first + len(self._pieces)))
        while self._size > self.limit and len(self._pieces) > 1:
            self._forget(self._first + 1)

    def _forget(self, until: int) -> None:
        gone = self._pieces[: until - self._first]
        if gone:
            del self._pieces[: len(gone)]
            self._first += len(gone)
            self._size -= sum([len(piece) for piece in gone])

    def _wake(self) -> None:
        for follower in self._followers:
            follower.wake()

    def used(self) -> Usage | None:
        """What the answer has used so far."""
        harvest = None if self._call is None else self._call.harvest
        return self.usage if harvest is None else harvest.usage()

    def since(self, place: int) -> tuple[bytes, int]:
        """What was published from a place on, and the place behind it; raises Failed where that is no more there."""
        if place < self._first:
            raise Failed(_LAGS)
        at = place - self._first
        new = self._pieces[at:] if at else self._pieces
        return b"".join(new), self._first + len(self._pieces)


class Follower(Sharing):
    """One call that follows; `place` is how many pieces it has had, `live` whether it takes them as they come."""

    __slots__ = ("_call", "_waiter", "live", "place", "publication")

    def __init__(self, publication: Publication, call: Call) -> None:
        self.publication = publication
        self.place = 0
        self.live = False
        self._call: Call | None = call
        self._waiter: asyncio.Future[None] | None = None

    async def begun(self) -> bool:
        """Wait for the beginning of a stream or for a whole unary answer; False where there is nothing to follow."""
        shared = self.publication
        while shared.open and not (shared.begun and shared.streams):
            await self._more()
        return shared.fault is None and not shared.withheld

    async def whole(self) -> bytes | None:
        """Wait for the end: all of the answer, None where it came to nothing, broke off or is withheld."""
        shared = self.publication
        while shared.open:
            await self._more()
        return None if shared.fault is not None else shared.taken

    async def pieces(self) -> AsyncIterator[bytes]:
        """The answer as it comes; raises Failed where it breaks off."""
        shared = self.publication
        self.live = True
        while True:
            data, self.place = shared.since(self.place)
            if data:
                yield data
            elif not shared.ended:
                await self._more()
            elif shared.fault is not None:
                raise Failed(shared.fault)
            else:
                if self._call is not None:
                    self._call.usage = shared.usage
                return

    async def _more(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def wake(self) -> None:
        """Something is new."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def over(self, outcome: Outcome) -> None:
        """Its call is over, however: it follows no more."""
        self.leave()

    def used(self) -> Usage | None:
        """What the answer has used so far, for one who takes it as it comes."""
        return self.publication.used() if self.live else None

    def leave(self) -> None:
        """Follow no more."""
        call, self._call = self._call, None
        if call is not None and call.sharing is self:
            call.sharing = None
        self.publication.leave(self)
