"""Who a call is for: a typed fact that one plugin provides and others, such as those that count and bill, require."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

from tailrace.proxy.limit import Limit

Names = tuple[str, ...] | None
"""Names, in which * stands for any text; None for whatever there is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who calls, and what that caller may do.

    `key` is a public id and never the secret, empty for nobody in particular. `expires` is in seconds of Unix time.
    """

    key: str
    tenant: str
    tags: tuple[str, ...] = ()
    models: Names = None
    routes: Names = None
    classes: Names = None
    limits: tuple[Limit, ...] = ()
    expires: float | None = None
    source: Literal["key", "jwt", "anonymous", "single"] = "key"


def allows(names: Sequence[str] | None, name: str) -> bool:
    """Whether a name is among those allowed."""
    if names is None or name in names:
        return True
    return any("*" in pattern and fnmatchcase(name, _literal(pattern)) for pattern in names)


def _literal(pattern: str) -> str:
    """A pattern in which only * is special."""
    return pattern.replace("[", "[[]").replace("?", "[?]")
