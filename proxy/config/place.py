"""Where a fault between fields stands: a path from the mapping that was checked to the entry that is concerned."""

from dataclasses import dataclass

from tailrace.proxy.config.flaws import quote
from tailrace.proxy.config.node import Node


class At:
    """A fault that `check` or `look` finds further down: `At("there is no such pool", "models", name, "pool")`.

    A step is a key or a position in a list; where the file goes less far, because a default or a shorthand stands for
    the rest, the last entry that is there is blamed. `bare` says that the text quotes nothing of the file: it is told
    as it is, also where a secret of the file happens to be one of its words.
    """

    __slots__ = ("bare", "path", "text")

    def __init__(self, text: str, *path: str | int, bare: bool = False) -> None:
        self.text = text
        self.path = path
        self.bare = bare

    def __str__(self) -> str:
        where = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in self.path)
        return f"{where.removeprefix('.')}: {self.text}" if where else self.text


@dataclass(frozen=True, slots=True)
class Spot:
    """A line of a file, and the path of what stands there."""

    file: str
    line: int
    where: str
    absent: bool = False
    """What stands there is on another machine."""


def spot_of(node: Node, path: tuple[str | int, ...]) -> Spot:
    """The place of a path below a node."""
    line, where = node.line, node.where
    for step in path:
        if isinstance(step, int):
            if node.kind != "sequence":
                # One element stands for the whole list.
                continue
            if step >= len(node.elements()):
                break
            node = node.elements()[step]
            line, where = node.line, f"{where}[{step}]"
        else:
            pair = node.pair(step) if node.kind == "mapping" else None
            if pair is None:
                break
            # A block begins a line below its key, and the key is what a reader looks for.
            line, node = pair[0].line, pair[1]
            where = f"{where}.{quote(step)[1:-1]}".removeprefix(".")
    return Spot(node.file, line, where, node.absent)
