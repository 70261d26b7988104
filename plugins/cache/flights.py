"""Answers under way that identical calls share, by their keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson
from tailrace.proxy.reply import Reply
from tailrace.proxy.stored.canonical import GENERATING
from tailrace.proxy.stored.giving import EVENTS, STEP, streamed
from tailrace.proxy.stored.keeping import unary_form
from tailrace.proxy.stored.sources import FOLLOWED
from tailrace.proxy.stored.unfold import unfold
from tailrace.proxy.stored.whole import has_stream_form

if TYPE_CHECKING:
    from tailrace.plugins.cache.desk import Asked
    from tailrace.proxy.call import Call
    from tailrace.proxy.publication import Publication


class Flights:
    """Those of one process; a key has one leader at most."""

    def __init__(self) -> None:
        self._leaders: dict[bytes, Asked] = {}

    def leader_of(self, asked: Asked) -> Asked | None:
        """Who leads for the same request, if one who joins now can have all of it."""
        leader = self._leaders.get(asked.key)
        if leader is None or leader.form != asked.form:
            return None
        return leader if leader.publication is not None and leader.publication.open else None

    def begin(self, asked: Asked) -> None:
        """A call leads, unless another one does already."""
        if asked.wishes.reads and (asked.key not in self._leaders or self.leader_of(asked) is None):
            self._leaders[asked.key] = asked

    def end(self, asked: Asked) -> None:
        """A call leads no more."""
        if self._leaders.get(asked.key) is asked:
            del self._leaders[asked.key]

    def forget(self) -> None:
        """Nobody joins what is under way any more; those who follow already go on."""
        self._leaders.clear()

    async def follow(self, call: Call, asked: Asked, leader: Asked) -> Reply | None:
        """The leader's answer in the form that this call asks for; None where it is not to be had."""
        publication = leader.publication
        assert publication is not None
        follower = publication.join(call)
        reply = None
        try:
            async with call.waiting():
                same = leader.manner == asked.manner
                if asked.manner.streams and same:
                    if await follower.begun() and publication.streams:
                        reply = Reply.follow(follower)
                else:
                    taken = await follower.whole()
                    if taken is not None:
                        reply = converted(call.route.name, publication, asked, taken, same=same)
        finally:
            if reply is None or isinstance(reply.body, bytes):
                follower.leave()
        return reply


def converted(route: str, publication: Publication, asked: Asked, taken: bytes, *, same: bool) -> Reply | None:
    """A whole answer as this call wants it; None where it has no such form."""
    usage = publication.usage
    if same or route not in GENERATING:
        kind = EVENTS if publication.streams else b"application/json"
        return Reply(200, taken, content_type=kind, usage=usage, source=FOLLOWED)
    answer = unary_form(route, taken, streamed=publication.streams, usage=usage)
    if answer is None:
        return None
    if not asked.manner.streams:
        return Reply(200, orjson.dumps(answer), usage=usage, source=FOLLOWED)
    try:
        if not has_stream_form(route, answer):
            return None
        events = unfold(route, answer, STEP, usage=asked.manner.usage)
    except (KeyError, TypeError, AttributeError):
        return None
    return streamed(events, [], usage, paced=False, source=FOLLOWED)
