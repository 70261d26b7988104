"""Durations and sizes: how a person writes them, and how they are written back."""

# ruff: noqa: D102 -- what each method must do stands once, in Shape

import re
from abc import abstractmethod
from decimal import Decimal
from typing import Annotated, Any, Final, TypeAlias, final

from tailrace.proxy.config.compound import Bounded, Either
from tailrace.proxy.config.flaws import Flaws
from tailrace.proxy.config.node import Node
from tailrace.proxy.config.shape import BAD, INTERPOLATED, Definitions, Json, Shape
from tailrace.proxy.config.simple import Number

_MILLISECONDS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_ONE_DURATION: Final = r"[0-9]{1,15}(?:\.[0-9]{1,9})?(?:ms|s|m|h|d)"
_DURATION_PART: Final = re.compile(r"([0-9.]+)(ms|s|m|h|d)")
_DURATION: Final = re.compile(rf"(?:{_ONE_DURATION}){{1,5}}")

_BYTES: Final = (
    {"b": 1}
    | {f"{p}b": 1000**n for n, p in enumerate("kmgt", 1)}
    | {f"{p}ib": 1024**n for n, p in enumerate("kmgt", 1)}
)
_SIZE: Final = re.compile(r"([0-9]{1,19}(?:\.[0-9]{1,9})?) ?((?:[kmgtKMGT][iI]?)?[bB])")
_LARGEST: Final = 2**63 - 1
_NEGATIVE: Final = re.compile(r"-[0-9.]")


class Unit(Shape):
    """A number that may be written with its unit; a bare number is in the base unit."""

    def decode(self, node: Node, flaws: Flaws) -> Any:
        number = self._number(node)
        if number is None and node.kind == "scalar" and not node.broken and _NEGATIVE.match(node.text):
            flaws.add(node, f"must not be negative, got {node.describe()}")
            return BAD
        return self.wrong(node, flaws) if number is None else number

    def fits(self, node: Node) -> bool:
        return self._number(node) is not None

    def _number(self, node: Node) -> float | int | None:
        value = None if node.kind != "scalar" or node.broken else node.scalar()
        if value is None or isinstance(value, bool):
            return None
        return self.read(value) if isinstance(value, str) else self.base(value)

    @abstractmethod
    def read(self, text: str) -> float | int | None:
        """What text with a unit means, None if nothing."""

    @abstractmethod
    def base(self, value: Any) -> float | int | None:
        """What a bare number means, None if nothing."""

    def holds(self, value: object) -> bool:
        return isinstance(value, int | float) and not isinstance(value, bool)


@final
class Duration(Unit):
    """Seconds as a float."""

    words = 'a duration such as 5 (seconds), "250ms", "5s", "2m" or "1h"'

    def __init__(self, *, off: bool = False) -> None:
        self._off = off
        if off:
            self.words += ", or off"

    def read(self, text: str) -> float | None:
        if self._off and text == "off":
            return 0.0
        thousandths = _thousandths(text)
        return None if thousandths is None else float(thousandths / 1000)

    def base(self, value: Any) -> float | None:
        return float(value) if value >= 0 else None

    def plain(self, value: float) -> Any:
        thousandths = value * 1000
        whole = [unit for unit, length in _MILLISECONDS.items() if value and thousandths % length == 0]
        unit = whole[-1] if whole else "ms" if value < 1 else "s"
        text = f"{thousandths / _MILLISECONDS[unit]:.12g}{unit}"
        if value and self.read(text) == value:
            return text
        return int(value) if value == int(value) < 1e15 else value

    def schema(self, definitions: Definitions) -> Json:
        pattern = f"^(?:{_ONE_DURATION})+${'|^off$' if self._off else ''}|{INTERPOLATED}"
        return {"type": ["number", "string"], "minimum": 0, "pattern": pattern}


@final
class Milliseconds(Unit):
    """Milliseconds as a float: what a field whose name ends in `_ms` holds."""

    words = 'milliseconds such as 30, or a duration such as "30ms"'

    def read(self, text: str) -> float | None:
        thousandths = _thousandths(text)
        return None if thousandths is None else float(thousandths)

    def base(self, value: Any) -> float | None:
        return float(value)

    def plain(self, value: float) -> float:
        return value

    def show(self, value: float) -> str:
        return f"{value:g} ms"

    def schema(self, definitions: Definitions) -> Json:
        return {"type": ["number", "string"], "pattern": f"^(?:{_ONE_DURATION})+$|{INTERPOLATED}"}


def in_milliseconds(shape: Shape) -> Shape:
    """The shape of a field whose name says that its number is in milliseconds: that may be written out, too."""
    if isinstance(shape, Number):
        return Milliseconds()
    if isinstance(shape, Bounded):
        return shape.around(in_milliseconds(shape.inner))
    if isinstance(shape, Either):
        return Either([in_milliseconds(option) for option in shape.options], optional=shape.optional)
    return shape


def _thousandths(text: str) -> Decimal | None:
    if not _DURATION.fullmatch(text):
        return None
    parts = (Decimal(number) * _MILLISECONDS[unit] for number, unit in _DURATION_PART.findall(text))
    return sum(parts, Decimal(0))


@final
class Bytes(Unit):
    """Bytes as an int; KiB is 1024, KB is 1000."""

    words = 'a size such as 1024, "64KB", "32MiB" or "1GiB"'

    def read(self, text: str) -> int | None:
        match = _SIZE.fullmatch(text)
        if match is None:
            return None
        factor = _BYTES[match[2].lower()]
        whole, _, part = match[1].partition(".")
        scaled, rest = divmod(int(whole + part) * factor, 10 ** len(part))
        return scaled if not rest and scaled <= _LARGEST else None

    def base(self, value: Any) -> int | None:
        return value if isinstance(value, int) and 0 <= value <= _LARGEST else None

    def plain(self, value: int) -> Any:
        for unit in ("TiB", "GiB", "MiB", "KiB", "TB", "GB", "MB", "KB"):
            if value and value % _BYTES[unit.lower()] == 0:
                return f"{value // _BYTES[unit.lower()]}{unit}"
        return value

    def schema(self, definitions: Definitions) -> Json:
        return {"type": ["integer", "string"], "minimum": 0, "pattern": f"^{_SIZE.pattern}$|{INTERPOLATED}"}


Seconds: TypeAlias = Annotated[float, Duration()]
"""A duration field."""
SecondsOrOff: TypeAlias = Annotated[float, Duration(off=True)]
"""A duration field in which 0 switches something off, and may be written `off`."""
Size: TypeAlias = Annotated[int, Bytes()]
"""A number-of-bytes field."""
