"""Text that has a type of its own, such as a network or a URL."""

# ruff: noqa: D102 -- what each method must do stands once, in Shape

from collections.abc import Callable
from typing import Any, final

from tailrace.proxy.config.flaws import Flaws
from tailrace.proxy.config.node import Node
from tailrace.proxy.config.simple import Text


@final
class Parsed(Text):
    """`Annotated[IPv4Network, Parsed(IPv4Network, "a network such as 10.0.0.0/8")]`.

    `read` makes the value of text and raises ValueError for text it cannot take; `str()` of the value gives text back.
    """

    def __init__(self, read: Callable[[str], Any], words: str) -> None:
        self._read = read
        self.words = words

    def decode(self, node: Node, flaws: Flaws) -> Any:
        if not self.fits(node):
            return self.wrong(node, flaws)
        try:
            return self._read(node.text)
        except ValueError:
            return self.wrong(node, flaws)

    def holds(self, value: object) -> bool:
        return value is not None

    def plain(self, value: object) -> str:
        return str(value)
