"""A configuration with a field of every kind, for the tests beside it."""

# ruff: noqa: RUF009 -- these calls make frozen values, or fields

import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from ipaddress import IPv4Network
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from tailrace.proxy.config import (
    AtLeast,
    ConfigError,
    Flaws,
    Matching,
    Node,
    NotEmpty,
    OrAlone,
    Parsed,
    Port,
    Seconds,
    Secret,
    Share,
    Size,
    decode,
    decode_fields,
    decode_source,
    parse,
    setting,
)


class Colour(enum.Enum):
    RED = "red"
    GREEN = "green"


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """Where clients connect."""

    shorthand: ClassVar[str] = "address"
    address: str
    backlog: Annotated[int, AtLeast(1)] = setting(default=1024, help="Pending connections.", why="A burst fits.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    least: Seconds = 1.0
    most: Seconds = 60.0

    def check(self) -> Iterable[str]:
        if self.least > self.most:
            yield "`least` is longer than `most`"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A plugin's entry: its name over its settings, which another part of the program knows."""

    name: str
    settings: Limits

    @classmethod
    def from_node(cls, node: Node, flaws: Flaws) -> Self | None:
        if node.get("name") is not None:
            return decode_fields(cls, node, flaws)
        pairs = tuple(node.items())
        if len(pairs) != 1:
            raise ValueError("an entry is one name over its settings")
        ((key, value),) = pairs
        settings = decode(Limits, value, flaws)
        return None if settings is None else cls(name=key.text, settings=settings)

    def to_plain(self) -> object:
        return {self.name: {"least": self.settings.least, "most": self.settings.most}}

    @classmethod
    def node_schema(cls, nested: Callable[[object], dict[str, Any]]) -> dict[str, Any]:
        short = {"type": "object", "not": {"required": ["name"]}, "additionalProperties": nested(Limits)}
        full = {"type": "object", "properties": {"name": nested(str), "settings": nested(Limits)}, "required": ["name"]}
        return {"anyOf": [short, full]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    label: str = "leaf"
    branches: tuple["Branch", ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    file: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    flag: bool = False
    count: int = 3
    ratio: float = 0.5
    text: str = "plain"
    key: Secret | None = None
    path: Path = Path("keys.yaml")
    colour: Colour = Colour.RED
    policy: Literal["tail", "random", 2] = "tail"
    maybe: int | None = None
    words: tuple[str, ...] = ("a", "b")
    numbers: frozenset[int] = frozenset({1, 2})
    weights: dict[str, Share] = setting(default_factory=lambda: {"m": 0.25}, help="Weight by model.")
    listen: tuple[Listener, ...] = ()
    doors: Annotated[tuple[Listener, ...], OrAlone()] = ()
    limits: Limits = setting(default_factory=Limits, help="How long to wait.")
    patience: Seconds | Literal["p95"] = 0.25
    body: Annotated[Size, AtLeast(1024)] = 1 << 20
    port: Port = 8080
    model: Annotated[str, Matching(r"[a-z0-9.-]+", "lower-case letters, digits, dots or dashes")] = "m-1"
    names: Annotated[tuple[str, ...], NotEmpty()] = ("x",)
    network: Annotated[IPv4Network, Parsed(IPv4Network, "a network such as 10.0.0.0/8")] = IPv4Network("10.0.0.0/8")
    store: Literal["memory"] | File = "memory"
    where: File | Limits | None = None
    entries: tuple[Entry, ...] = ()
    tree: Branch = setting(default_factory=Branch)
    level: Annotated[int, AtLeast(1)] | str = 1
    loose: str | int = "x"
    switch: Literal[1, True, "auto"] = 1
    token: Annotated[Secret, Matching(r"[a-z]{4,}", "four small letters or more")] | None = None
    free: Any = None
    later: Node | None = None


def read_sample(text: str, environ: dict[str, str] | None = None) -> Sample:
    return decode_source(Sample, parse(text, "t.yaml", environ=environ or {}))


def flaws_of(text: str, environ: dict[str, str] | None = None, cls: type = Sample) -> list[str]:
    """What is wrong, as `line: text`."""
    try:
        decode_source(cls, parse(text, "t.yaml", environ=environ or {}))
    except ConfigError as error:
        return [line.removeprefix("t.yaml:") for line in str(error).splitlines()]
    return []
