"""One API key as it is stored: who it is for, what it may do, until when; never the key itself."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from enum import IntEnum
from typing import Any, Final

import orjson
from tailrace.proxy.config import Flaws, Node
from tailrace.proxy.identity import Identity, Names
from tailrace.proxy.limit import Limit

_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_DIGEST: Final = re.compile(r"[0-9a-fA-F]{64}")
_TEXT: Final = re.compile(r"[^\x00-\x1f\x7f]{1,128}")
_NAMES: Final = ("models", "routes", "classes")
_FIELDS: Final = frozenset(
    {"id", "digest", "tenant", "tags", *_NAMES, "limits", "expires", "disabled", "created", "previous"}
    | {"previous_until"}
)
FOREVER: Final = math.inf


class Status(IntEnum):
    """Whether a stored key opens anything. Zero is left to places where no key is."""

    LIVE = 1
    DISABLED = 2
    REVOKED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A stored key. Times are in seconds of Unix time, FOREVER where there is no end."""

    id: str
    digest: bytes
    tenant: str
    tags: tuple[str, ...] = ()
    models: Names = None
    routes: Names = None
    classes: Names = None
    limits: tuple[Limit, ...] = ()
    expires: float = FOREVER
    status: Status = Status.LIVE
    created: float = 0.0
    previous: bytes | None = None
    previous_until: float = 0.0

    @classmethod
    def of_plain(cls, plain: object) -> Record:
        """A record from what YAML has of it; the ValueError says what is wrong."""
        if not isinstance(plain, Mapping):
            raise ValueError("a key is a mapping with `id`, `digest` and `tenant`")  # noqa: TRY004
        unknown = [str(key)[:40] for key in plain if key not in _FIELDS]
        if unknown:
            raise ValueError(f"unknown key '{unknown[0]}'; known: {', '.join(sorted(_FIELDS))}")
        previous = plain.get("previous")
        return cls(
            id=checked_id(plain.get("id")),
            digest=_digest("digest", plain.get("digest")),
            expires=moment("expires", plain.get("expires"), FOREVER),
            status=Status.DISABLED if _flag(plain.get("disabled", False)) else Status.LIVE,
            created=moment("created", plain.get("created"), 0.0),
            previous=None if previous is None else _digest("previous", previous),
            previous_until=moment("previous_until", plain.get("previous_until"), FOREVER),
            **grants_of(plain),
        )

    @classmethod
    def from_node(cls, node: Node, flaws: Flaws) -> Record | None:
        """Read it from a file of keys."""
        try:
            return cls.of_plain(node.plain())
        except ValueError as error:
            flaws.add(node, str(error))
            return None

    def to_plain(self) -> dict[str, object]:
        """What people may see of it."""
        return {"id": self.id, "status": self.status.name.lower(), **plain_grants(self)}

    @classmethod
    def node_schema(cls, nested: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        """Its form for editors."""
        return {"type": "object", "required": ["id", "digest", "tenant"]}


def checked_id(value: object) -> str:
    """An id, which may stand in logs, metrics and URLs."""
    if isinstance(value, str) and _ID.fullmatch(value):
        return value
    raise ValueError("`id` must be 1 to 64 letters, digits, dots, dashes, underscores or @, a letter or digit first")


def grants_of(plain: Mapping[str, Any]) -> dict[str, Any]:
    """Tenant, tags, names and limits of a mapping, checked: what records, stored JSON and claims have in common."""
    limits = plain.get("limits") or ()
    if not isinstance(limits, list | tuple):
        raise ValueError("`limits` must be a list")  # noqa: TRY004
    return {
        "tenant": _text("tenant", plain.get("tenant")),
        "tags": _texts("tags", plain.get("tags")) or (),
        "limits": tuple(map(Limit.of_plain, limits)),
        **{name: _texts(name, plain.get(name)) for name in _NAMES},
    }


def plain_grants(held: Record | Identity) -> dict[str, object]:
    """The inverse; what is not restricted is left out."""
    plain: dict[str, object] = {"tenant": held.tenant}
    if held.tags:
        plain["tags"] = list(held.tags)
    for name in _NAMES:
        names: Names = getattr(held, name)
        if names is not None:
            plain[name] = list(names)
    if held.limits:
        plain["limits"] = [limit.to_plain() for limit in held.limits]
    return plain


def packed(record: Record) -> bytes:
    """What stores and tables keep of the grants."""
    return orjson.dumps(plain_grants(record))


def identity_of(key_id: str, grants: bytes, until: float) -> Identity:
    """Who a key is for; ValueError where what was stored makes no sense."""
    plain = orjson.loads(grants)
    if not isinstance(plain, dict):
        raise ValueError("what is stored of a key must be an object")  # noqa: TRY004
    return Identity(key=key_id, expires=None if until == FOREVER else until, **grants_of(plain))


def moment(name: str, value: object, otherwise: float) -> float:
    """A time as people write it: 2027-01-31, 2027-01-31T12:00:00Z, or seconds of Unix time."""
    if value is None:
        return otherwise
    if type(value) in (int, float) and math.isfinite(value):  # type: ignore[arg-type]
        return float(value)  # type: ignore[arg-type]
    if isinstance(value, date):
        value = value.isoformat()
    try:
        found = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        found = None
    if found is None:
        raise ValueError(f"`{name}` must be a time such as 2027-01-31 or 2027-01-31T12:00:00Z")
    return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).timestamp()


def _digest(name: str, value: object) -> bytes:
    if isinstance(value, str) and _DIGEST.fullmatch(value):
        return bytes.fromhex(value)
    raise ValueError(f"`{name}` must be the SHA-256 of a key, as 64 hexadecimal digits")


def _flag(value: object) -> bool:
    if isinstance(value, bool):
        return value
    raise ValueError("`disabled` must be true or false")


def _text(name: str, value: object) -> str:
    if isinstance(value, str) and _TEXT.fullmatch(value):
        return value
    raise ValueError(f"`{name}` must be text of 1 to 128 characters")


def _texts(name: str, value: object) -> tuple[str, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list | tuple):
        raise ValueError(f"`{name}` must be a list")  # noqa: TRY004
    return tuple(_text(name, each) for each in value)
