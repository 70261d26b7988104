"""Which of the classes of service a call has: what `service_class` does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailrace.proxy.fault import Reject
from tailrace.proxy.identity import Identity, allows
from tailrace.proxy.service_class import ServiceClass

if TYPE_CHECKING:
    from tailrace.plugins.service_class import Config
    from tailrace.proxy.call import Call


class Choice:
    """As the settings say."""

    __slots__ = ("_default", "_facts", "_header", "_routes")

    def __init__(self, config: Config) -> None:
        self._facts = {name: ServiceClass(name) for name in config.names}
        self._default = self._facts[config.default or config.names[0]]
        self._routes = {route: self._facts[name] for route, name in config.routes.items()}
        self._header = config.header.lower().encode()

    def choose(self, call: Call) -> None:
        """Find the class; raises Reject for one that there is not, or that the caller may not have."""
        identity = call.fact(Identity)
        asked = call.head.folded.get(self._header)
        if asked is not None and (identity is not None or call.peer.trusted):
            call.provide(self._asked(asked, identity, trusted=call.peer.trusted))
            return
        found = self._routes.get(call.route.name) or self._default if self._routes else self._default
        if identity is not None and identity.classes is not None:
            found = self._held(identity.classes, found)
        call.provide(found)

    def _asked(self, asked: bytes, identity: Identity | None, *, trusted: bool) -> ServiceClass:
        name = asked.decode("latin-1")
        fact = self._facts.get(name)
        if fact is None:
            known = ", ".join(self._facts)
            raise Reject(400, "unknown_class", f"There is no such class of service. Classes: {known}.")
        if identity is not None and not trusted and not allows(identity.classes, name):
            raise Reject(403, "class_not_allowed", f"This caller may not have the class '{name}'.")
        return fact

    def _held(self, held: tuple[str, ...], otherwise: ServiceClass) -> ServiceClass:
        """The class of a caller who may have only some: `otherwise`, where that is among them, else the first."""
        if allows(held, otherwise.name):
            return otherwise
        for name in held:
            if name in self._facts:
                return self._facts[name]
        for name, fact in self._facts.items():
            if allows(held, name):
                return fact
        raise Reject(403, "class_not_allowed", "This caller may have none of the classes of service.")
