"""One value of a YAML file, after interpolation, that knows where it stands."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, final

from tailrace.proxy.config.flaws import ConfigError, Flaw, Flaws, quote
from tailrace.proxy.config.scalars import Scalar, typed
from tailrace.proxy.config.secret import MASK, Hidden

Kind: TypeAlias = Literal["mapping", "sequence", "scalar"]
# What is shorter stands in other words, too.
_SHORTEST_SECRET: Final = 4
_KIND_WORDS: Final[dict[Kind, str]] = {"mapping": "a mapping", "sequence": "a list", "scalar": "one value"}


@final
class Origin:
    """The file that nodes come from, with the faults found before anybody decoded them."""

    __slots__ = ("_secrets", "file", "flaws", "folder", "looks")

    def __init__(self, file: str, *, looks: bool = False) -> None:
        self.file = file
        self.looks = looks
        """Whether what the file names outside itself, other files above all, is looked for while it is decoded."""
        self.folder = Path(file).parent
        self.flaws = Flaws()
        self._secrets: set[str] = set()

    def cover(self, secret: str) -> None:
        """Keep some text of the file out of messages."""
        if len(secret) >= _SHORTEST_SECRET:
            self._secrets.add(secret)

    def covered(self, message: str) -> str:
        """A message of a check, which knows nothing of where its values came from, without what may not be shown."""
        for secret in sorted(self._secrets, key=len, reverse=True):
            message = message.replace(secret, MASK)
        return message


@final
class Node:
    """A mapping, a list or a scalar of the file.

    Asking a node for what it is not (the items of a list) raises a ConfigError that says so at its line: bad input, not
    a bug. Two nodes are equal when their plain values are, wherever they stand.
    """

    __slots__ = (
        "_elements",
        "_pairs",
        "_step",
        "_up",
        "absent",
        "broken",
        "height",
        "hidden",
        "inserted",
        "kind",
        "line",
        "origin",
        "quoted",
        "size",
        "text",
        "written",
    )

    def __init__(
        self, kind: Kind, origin: Origin, line: int, up: "Node | None" = None, step: str | int | None = None
    ) -> None:
        self.kind: Kind = kind
        self.origin = origin
        self.line = line
        self._up = up
        self._step = step
        self._pairs: dict[str, tuple[Node, Node]] = {}
        self._elements: list[Node] = []
        self.text = ""
        """A scalar's text after interpolation."""
        self.written = ""
        """A scalar's text as the file has it: the one that may be shown."""
        self.quoted = False
        """Text for certain, whatever it looks like."""
        self.hidden = False
        """Came out of a `${file:}`, or is a secret by its name."""
        self.inserted = False
        """Came out of a reference, in part or in whole."""
        self.absent = False
        """Stands in for what is on another machine: no bound says anything about it."""
        self.broken = False
        """Its fault is already noted: decoding it must not add another."""
        self.size = 0
        """How many nodes it stands for with all aliases written out; 0 while its end was not met."""
        self.height = 0
        """How many levels it holds."""

    @property
    def file(self) -> str:
        """The file's name as it was given."""
        return self.origin.file

    @property
    def where(self) -> str:
        """The path from the root, such as `server.listen[0].port`; empty for the root.

        What an alias brings in keeps the path of the place where it is written, as it keeps that line.
        """
        if self._up is None:
            return ""
        above = self._up.where
        if isinstance(self._step, int):
            return f"{above}[{self._step}]"
        if self._step is None:
            return above
        step = quote(self._step)[1:-1]
        return f"{above}.{step}" if above else step

    @property
    def is_null(self) -> bool:
        """Nothing, `~` or `null` stands there."""
        return self.kind == "scalar" and not self.broken and self.scalar() is None

    @property
    def is_faulty(self) -> bool:
        """Whether a fault of it, or of something in it, was noted when the file was parsed."""
        inside = (*self._elements, *(value for _, value in self._pairs.values()))
        return self.broken or any(node.is_faulty for node in inside)

    def items(self) -> Iterator[tuple["Node", "Node"]]:
        """Keys and values of a mapping, in the order of the file."""
        self._must_be("mapping")
        return iter(self._pairs.values())

    def pair(self, key: str) -> "tuple[Node, Node] | None":
        """A key of a mapping with its value."""
        self._must_be("mapping")
        return self._pairs.get(key)

    def get(self, key: str) -> "Node | None":
        """The value under a key of a mapping."""
        pair = self.pair(key)
        return pair[1] if pair else None

    def elements(self) -> tuple["Node", ...]:
        """The values of a list."""
        self._must_be("sequence")
        return tuple(self._elements)

    def scalar(self) -> Scalar:
        """The typed value of a scalar."""
        self._must_be("scalar")
        if self.quoted:
            return self.as_text()
        value = typed(self.text)
        return self.as_text() if isinstance(value, str) else value

    def as_text(self) -> str:
        """A scalar's text whatever its type, hidden from repr if it came from a file."""
        self._must_be("scalar")
        if not self.hidden:
            return self.text
        self.origin.cover(self.text)
        return Hidden(self.text)

    def plain(self) -> Any:
        """Dicts, lists and scalars, as JSON would have them."""
        if self.kind == "mapping":
            return {key: value.plain() for key, (_, value) in self._pairs.items()}
        if self.kind == "sequence":
            return [element.plain() for element in self._elements]
        return self.scalar()

    def describe(self) -> str:
        """What stands here, for "expected …, got …"; never what an interpolation brought in."""
        if self.kind != "scalar":
            return _KIND_WORDS[self.kind]
        if self.inserted:
            return f"what {quote(self.written)} stands for"
        value = self.scalar()
        if value is None:
            return "nothing"
        if not isinstance(value, str):
            return self.written
        if not value:
            return "empty text"
        if self.quoted and not isinstance(typed(value), str):
            return f"the text {quote(value)} (unquoted it would be something else)"
        return quote(value)

    def put(self, key: "Node", value: "Node") -> None:
        """Add a pair to a mapping; for the builder of the tree only."""
        self._pairs[key.text] = (key, value)

    def append(self, element: "Node") -> None:
        """Add an element to a list; for the builder of the tree only."""
        self._elements.append(element)

    def _must_be(self, kind: Kind) -> None:
        if self.kind != kind:
            text = f"expected {_KIND_WORDS[kind]}, got {self.describe()}"
            raise ConfigError((Flaw(self.file, self.line, f"{self.where}: {text}" if self.where else text),))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Node):
            return NotImplemented
        return self.kind == other.kind and bool(self.plain() == other.plain())

    def __hash__(self) -> int:
        return hash(self.kind)

    def __repr__(self) -> str:
        return f"<{self.kind} at {self.file}:{self.line}>"
