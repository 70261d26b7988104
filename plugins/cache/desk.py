"""What `cache` decides of each call: whether anything kept is to be had to do with it, and under which key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tailrace.proxy.identity import Identity
from tailrace.proxy.plugin import Key
from tailrace.proxy.stored.asking import DRAWN, NATURAL, drawn, obstacle, refers_elsewhere
from tailrace.proxy.stored.canonical import canonical, check_of, fields_of, key_of
from tailrace.proxy.stored.giving import Manner
from tailrace.proxy.stored.wishes import Wishes, wishes_of

if TYPE_CHECKING:
    from tailrace.proxy.call import Call
    from tailrace.proxy.publication import Publication
    from tailrace.proxy.stored.answer import Answer

ROUTES: Final = DRAWN | NATURAL
REASONS: Final = ("asked", "drawn", "effects", "form", "media", "unreadable", "too_long")
"""Why a call may have nothing to do with what is kept."""


class Asked:
    """A call whose answer may be kept: what it asks, and what became of it."""

    __slots__ = (
        "_check", "choices", "form", "key", "manner", "model", "old", "publication", "route", "scope", "wishes",
    )  # fmt: skip

    def __init__(
        self, scope: str, model: str, route: str, form: bytes, manner: Manner, wishes: Wishes, choices: int
    ) -> None:
        self.scope = scope
        self.model = model
        self.route = route
        self.form = form
        self.key = key_of(form)
        self.manner = manner
        self.wishes = wishes
        self.choices = choices
        self.publication: Publication | None = None
        """Where it leads, what it gives to others."""
        self.old: Answer | None = None
        self._check = b""

    @property
    def check(self) -> bytes:
        """What tells it from another request with the same key; most calls never need it."""
        if not self._check:
            self._check = check_of(self.form)
        return self._check


ASKED: Final[Key[Asked]] = Key("cache")
TOLD: Final[Key[bytes]] = Key("cache told")
"""What the client hears of it."""


def concerns(call: Call) -> bool:
    """Whether a call is of a kind that could be answered again at all."""
    return call.route.name in ROUTES and call.entry is not None and call.body is not None and call.pinned is None


class Desk:
    """Reads calls by one configuration."""

    def __init__(self, scope: str | None, *, always: bool) -> None:
        self._scope = scope
        self._always = always

    def asked(self, call: Call) -> Asked | str:
        """What a call asks, or why nothing kept is for it; of calls that it concerns."""
        wishes = wishes_of(call)
        if wishes.none:
            return "asked"
        if not self._always and not wishes.wanted and drawn(call):
            return "drawn"
        fields = fields_of(call)
        if fields is None:
            return "unreadable"
        why = obstacle(call, fields)
        if why is not None:
            return why
        manner = Manner.of(call, fields)
        count = fields.get("n")
        scope = self._scope_of(call)
        form = canonical(call, scope, fields)
        if refers_elsewhere(form):
            return "media"
        entry = call.entry
        model = (entry.served if entry is not None else "") or call.model
        return Asked(scope, model, call.route.name, form, manner, wishes, count if isinstance(count, int) else 1)

    def _scope_of(self, call: Call) -> str:
        """Whose answers are for this call: a name with a mark, so that no tenant has that of a shared scope."""
        if self._scope is not None:
            return "*" + self._scope
        identity = call.fact(Identity)
        if identity is None:
            return ""
        return f"={identity.tenant}" if identity.tenant else f"#{identity.key}"
