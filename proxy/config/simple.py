"""Shapes of single values: true/false, numbers, text, secrets, paths, choices."""

# ruff: noqa: D102 -- what each method must do stands once, in Shape

import difflib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tailrace.proxy.config.flaws import Flaws, name
from tailrace.proxy.config.node import Node
from tailrace.proxy.config.secret import MASK, Secret, shown
from tailrace.proxy.config.shape import BAD, INTERPOLATED, Definitions, Json, Shape

_DIGITS: Final = re.compile(r"[-+]?[0-9]+")
_LARGEST: Final = 2**63 - 1


class TrueFalse(Shape):
    """`bool`: only `true` and `false`."""

    words = "true or false"

    def decode(self, node: Node, flaws: Flaws) -> Any:
        return node.scalar() if self.fits(node) else self.wrong(node, flaws)

    def fits(self, node: Node) -> bool:
        return node.kind == "scalar" and not node.broken and isinstance(node.scalar(), bool)

    def holds(self, value: object) -> bool:
        return isinstance(value, bool)

    def plain(self, value: bool) -> bool:
        return value

    def show(self, value: bool) -> str:
        return str(value).lower()

    def schema(self, definitions: Definitions) -> Json:
        return {"type": ["boolean", "string"], "pattern": INTERPOLATED}


class Whole(Shape):
    """`int`: a 64-bit number."""

    words = "a whole number"

    def decode(self, node: Node, flaws: Flaws) -> Any:
        if not self.fits(node):
            if node.kind == "scalar" and not node.quoted and _DIGITS.fullmatch(node.text) and len(node.text) > 19:
                return self._too_large(node, flaws)
            return self.wrong(node, flaws)
        value = node.scalar()
        assert isinstance(value, int)
        return value if abs(value) <= _LARGEST else self._too_large(node, flaws)

    def _too_large(self, node: Node, flaws: Flaws) -> Any:
        flaws.add(node, f"expected {self.words} below 2^63")
        return BAD

    def fits(self, node: Node) -> bool:
        return node.kind == "scalar" and not node.broken and self.holds(node.scalar())

    def holds(self, value: object) -> bool:
        return isinstance(value, int) and not isinstance(value, bool)

    def plain(self, value: int) -> int:
        return value

    def schema(self, definitions: Definitions) -> Json:
        return {"type": ["integer", "string"], "pattern": INTERPOLATED}


class Number(Shape):
    """`float`: a finite number."""

    words = "a number"

    def decode(self, node: Node, flaws: Flaws) -> Any:
        value = node.scalar() if self.fits(node) else None
        return self.wrong(node, flaws) if value is None else float(value)

    def fits(self, node: Node) -> bool:
        return node.kind == "scalar" and not node.broken and self.holds(node.scalar())

    def holds(self, value: object) -> bool:
        return isinstance(value, int | float) and not isinstance(value, bool)

    def plain(self, value: float) -> float:
        return value

    def schema(self, definitions: Definitions) -> Json:
        return {"type": ["number", "string"], "pattern": INTERPOLATED}


class Text(Shape):
    """`str`: as written, even where YAML would see a number, a date or a boolean."""

    words = "text"

    def decode(self, node: Node, flaws: Flaws) -> Any:
        return node.as_text() if self.fits(node) else self.wrong(node, flaws)

    def fits(self, node: Node) -> bool:
        # An empty variable is empty text; an empty place in the file is an oversight.
        return node.kind == "scalar" and not node.broken and (not node.is_null or node.inserted)

    def holds(self, value: object) -> bool:
        return isinstance(value, str)

    def plain(self, value: str) -> str:
        return shown(value)

    def schema(self, definitions: Definitions) -> Json:
        return {"type": ["string", "number", "boolean"]}


class Covered(Text):
    """A mark: `Annotated[str, Covered()]` is text to those who use it, and shown as a mask."""

    def plain(self, value: str) -> str:
        return MASK


class SecretText(Text):
    """`Secret`: text that is never shown."""

    words = "a secret"

    def decode(self, node: Node, flaws: Flaws) -> Any:
        if not self.fits(node):
            return self.wrong(node, flaws)
        if node.text:
            node.origin.cover(node.text)
            return Secret(node.text)
        flaws.add(node, f"expected {self.words}, got empty text")
        return BAD

    def holds(self, value: object) -> bool:
        return isinstance(value, Secret)

    def plain(self, value: object) -> str:
        return MASK

    def schema(self, definitions: Definitions) -> Json:
        return {"type": ["string", "number", "boolean"], "minLength": 1}


class FilePath(Text):
    """`Path`: a relative one starts at the folder of the file it is written in."""

    words = "a path"

    def decode(self, node: Node, flaws: Flaws) -> Any:
        if not self.fits(node):
            return self.wrong(node, flaws)
        if node.text and "\0" not in node.text:
            return node.origin.folder / node.text
        flaws.add(node, f"expected {self.words}, got {node.describe() if node.text else 'empty text'}")
        return BAD

    def holds(self, value: object) -> bool:
        return isinstance(value, Path)

    def plain(self, value: object) -> str:
        return str(value)

    def schema(self, definitions: Definitions) -> Json:
        return {"type": ["string", "number", "boolean"], "minLength": 1}


class Choice(Shape):
    """`Literal` and `Enum`: one of a few words or numbers."""

    def __init__(self, options: Sequence[tuple[Any, object]]) -> None:
        if not all(isinstance(written, str | int) for written, _ in options):
            raise TypeError("a choice is between words and numbers")
        self._options = tuple(options)
        shown = [str(written).lower() if isinstance(written, bool) else str(written) for written, _ in options]
        self._by_text = dict(zip(shown, (value for _, value in options), strict=True))
        self.words = shown[0] if len(shown) == 1 else "one of " + ", ".join(shown)

    def decode(self, node: Node, flaws: Flaws) -> Any:
        if self.fits(node):
            return self._by_text[node.text]
        near = [] if node.inserted or node.kind != "scalar" else self._near(node.text[:80])
        return self.wrong(node, flaws, f", did you mean {name(near[0])}?" if near else "")

    def _near(self, text: str) -> list[str]:
        return [known for known in self._by_text if known.lower() == text.lower()] or difflib.get_close_matches(
            text, self._by_text, 1
        )

    def fits(self, node: Node) -> bool:
        return node.kind == "scalar" and not node.broken and node.text in self._by_text

    def holds(self, value: object) -> bool:
        return any(type(value) is type(option) and value == option for _, option in self._options)

    def plain(self, value: object) -> Any:
        return next(written for written, option in self._options if type(value) is type(option) and value == option)

    def schema(self, definitions: Definitions) -> Json:
        written = [written for written, _ in self._options]
        return {"anyOf": [{"enum": written}, {"type": "string", "pattern": INTERPOLATED}]}
