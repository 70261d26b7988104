"""One bound on what somebody may use, as a line of YAML, a stored key or a token's claim says it.

`{requests: 100, per: minute}`, `{money: "12.50", per: month, zone: Europe/Berlin}`, `{concurrent_requests: 4}`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, Literal, cast, get_args
from zoneinfo import ZoneInfo

from tailrace.proxy import money
from tailrace.proxy.config import Flaws, Node

What = Literal["requests", "tokens", "money", "concurrent_requests", "concurrent_tokens"]
Per = Literal["second", "minute", "hour", "day", "month", "total"]
Of = Literal["key", "tenant", "model", "tag"]

_WHATS: Final[tuple[str, ...]] = get_args(What)
_PERS: Final[tuple[str, ...]] = get_args(Per)
_PERS_OF_MONEY: Final = ("day", "month", "total")
_OFS: Final[tuple[str, ...]] = get_args(Of)
_LARGEST: Final = 2**62


@dataclass(frozen=True, slots=True)
class Limit:
    """At most `amount` of something; money counts in nano-units.

    `per` is None for what runs at one time, `zone` says where days and months begin, `of` whose use is added up.
    """

    what: What
    amount: int
    per: Per | None
    zone: str = "UTC"
    of: Of = "key"

    @classmethod
    def of_plain(cls, plain: object) -> Limit:
        """A limit from what YAML or JSON has of it; the ValueError says what is wrong."""
        if not isinstance(plain, Mapping):
            raise ValueError("a limit is a mapping such as {requests: 100, per: minute}")  # noqa: TRY004
        unknown = [str(key)[:40] for key in plain if key not in (*_WHATS, "per", "zone", "of")]
        named = [key for key in _WHATS if key in plain]
        if unknown or len(named) != 1:
            wrong = f"unknown key '{unknown[0]}'" if unknown else "a limit names one thing"
            raise ValueError(f"{wrong}: {', '.join(_WHATS)}, with `per`, `zone` and `of` beside it")
        what = cast("What", named[0])
        per = _per(what, plain.get("per"))
        return cls(what, _amount(what, plain[what]), per, _zone(plain.get("zone", "UTC")), _of(plain.get("of", "key")))

    @classmethod
    def from_node(cls, node: Node, flaws: Flaws) -> Limit | None:
        """Read it from a configuration file."""
        try:
            return cls.of_plain(node.plain())
        except ValueError as error:
            flaws.add(node, str(error))
            return None

    def to_plain(self) -> dict[str, object]:
        """What `of_plain` reads; what goes without saying is left out."""
        plain: dict[str, object] = {self.what: money.render(self.amount) if self.what == "money" else self.amount}
        if self.per is not None:
            plain["per"] = self.per
        if self.zone != "UTC":
            plain["zone"] = self.zone
        if self.of != "key":
            plain["of"] = self.of
        return plain

    @classmethod
    def node_schema(cls, nested: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        """Its form for editors."""
        amounts: dict[str, Any] = {what: {"type": ["integer", "string", "number"]} for what in _WHATS}
        return {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                **amounts,
                "per": {"enum": list(_PERS)},
                "zone": {"type": "string"},
                "of": {"enum": list(_OFS)},
            },
        }


def _amount(what: What, value: object) -> int:
    if what == "money":
        # A float has already lost digits where it was read; the shortest text that stands for it has not.
        text = value if isinstance(value, str) else ""
        if type(value) in (int, float):
            text = f"{Decimal(repr(value)):f}"
        amount = money.parse(text)
    elif isinstance(value, str) and value.isascii() and value.isdigit():
        amount = int(value)
    elif type(value) is int:
        amount = value
    else:
        raise ValueError(f"'{what}' must be a whole number")
    if not 0 <= amount <= _LARGEST:
        raise ValueError(f"'{what}' must be from 0 to {_LARGEST}")
    return amount


def _per(what: What, value: object) -> Per | None:
    if what.startswith("concurrent"):
        if value is not None:
            raise ValueError(f"'{what}' is a bound at any time: it has no `per`")
        return None
    periods = _PERS_OF_MONEY if what == "money" else _PERS
    if value not in periods:
        raise ValueError(f"`per` of '{what}' must be one of {', '.join(periods)}")
    return cast("Per", value)


def _zone(value: object) -> str:
    try:
        if isinstance(value, str):
            return ZoneInfo(value).key
    except (OSError, ValueError, KeyError):  # the last is how an unknown name is told
        pass
    raise ValueError("`zone` must be the name of a time zone, such as Europe/Berlin")


def _of(value: object) -> Of:
    if value not in _OFS:
        raise ValueError(f"`of` must be one of {', '.join(_OFS)}")
    return cast("Of", value)
