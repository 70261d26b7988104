"""One call that belongs to a domain: what it asks, and what came of looking for an answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tailrace.proxy.plugin import Key

if TYPE_CHECKING:
    from tailrace.plugins.semantic_cache.embedding import Vector
    from tailrace.plugins.semantic_cache.memory import Entry, Scope
    from tailrace.plugins.semantic_cache.question import Question
    from tailrace.plugins.semantic_cache.settings import Domain
    from tailrace.proxy.identity import Identity
    from tailrace.proxy.stored.keeping import Keep
    from tailrace.proxy.stored.wishes import Wishes

HIT: Final = "hit"
MISS: Final = "miss"
SHADOW: Final = "shadow"
BYPASS: Final = "bypass"


class Asked:
    """`question` is None for a call that is to be left alone; `like` is the entry that has its answer."""

    __slots__ = (
        "began_ns",
        "domain",
        "keep",
        "like",
        "owner",
        "question",
        "similarity",
        "state",
        "streamed",
        "tenant",
        "vector",
        "wishes",
    )

    def __init__(self, domain: Domain, identity: Identity | None, wishes: Wishes, began_ns: int) -> None:
        self.domain = domain
        self.tenant = "" if identity is None else identity.tenant
        # Who has no tenant has nothing in common with others.
        self.owner = f"={self.tenant}" if self.tenant or identity is None else f"#{identity.key}"
        self.began_ns = began_ns
        self.wishes = wishes
        self.question: Question | None = None
        self.vector: Vector | None = None
        self.state = BYPASS
        self.like: Entry | None = None
        self.similarity = 0.0
        self.keep: Keep | None = None
        self.streamed = False

    @property
    def scope(self) -> Scope:
        """Where its like may be looked for."""
        assert self.question is not None
        return self.tenant, self.domain.name, self.question.context

    @property
    def told(self) -> bytes:
        """What the client may know of it."""
        told = f"{self.state}; domain={self.domain.name}"
        if self.like is not None:
            told += f"; similarity={self.similarity:.3f}"
        return told.encode()


ASKED: Final[Key[Asked]] = Key("semantic_cache")
