"""Which answers an operator wants thrown away: by tenant, model, or the beginning of their keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from tailrace.proxy.control import Refused

if TYPE_CHECKING:
    from tailrace.proxy.chain import Chain
    from tailrace.proxy.stored.answer import Answer

_FIELDS = ("tenant", "scope", "model", "prefix")


def path_of(scope: str, model: str, route: str, key: bytes) -> str:
    """A key as it is written in a store, and shown to operators: `=TENANT/MODEL/ROUTE/DIGEST`, each part quoted."""
    return f"{quote(scope, safe='=*#')}/{quote(model, safe='')}/{route}/{key.hex()}"


@dataclass(frozen=True, slots=True)
class Chosen:
    """All that are given must hold; `model` is the name that workers know it by."""

    scope: str | None = None
    model: str | None = None
    prefix: str = ""

    @classmethod
    def of(cls, chain: Chain, fields: dict[str, Any]) -> Chosen:
        """What the admin port was sent; raises Refused for anything else."""
        given = {name: value for name, value in fields.items() if value is not None}
        if unknown := given.keys() - set(_FIELDS):
            raise Refused(f"there is no '{min(unknown)[:64]}' here: {', '.join(_FIELDS)}")
        if not all(isinstance(value, str) for value in given.values()):
            raise Refused("each of them is a text")
        if "tenant" in given and "scope" in given:
            raise Refused("give `tenant` or `scope`")
        scope = "=" + given["tenant"] if "tenant" in given else None
        if "scope" in given:
            scope = "*" + given["scope"]
        model = given.get("model")
        entry = None if model is None else chain.models.entries.get(model)
        if entry is not None and entry.served:
            model = entry.served
        return cls(scope, model, given.get("prefix", ""))

    def matches(self, key: bytes, answer: Answer) -> bool:
        """Whether an answer is one of them."""
        if self.scope is not None and answer.scope != self.scope:
            return False
        if self.model is not None and answer.model != self.model:
            return False
        return not self.prefix or path_of(answer.scope, answer.model, answer.route, key).startswith(self.prefix)

    def pattern(self) -> str:
        """The least of what a store has to go through, as its own kind of pattern; `matches_path` sees to the rest."""
        scope = "*" if self.scope is None else _literal(quote(self.scope, safe="=*#"))
        model = "*" if self.model is None else _literal(quote(self.model, safe=""))
        return f"{scope}/{model}/*"

    def matches_path(self, path: str) -> bool:
        """Whether a key that fits the pattern is one of them."""
        return path.startswith(self.prefix)


def _literal(text: str) -> str:
    return text.replace("*", r"\*")
