"""Values that no rendering, repr or fault may show."""

import hmac
from typing import Final, final

MASK: Final = "***"


@final
class Secret:
    """A credential; its text is had only by asking for it."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The credential itself."""
        return self._text

    def __repr__(self) -> str:
        return f"Secret({MASK})"

    def __str__(self) -> str:
        return MASK

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self._text.encode(), other._text.encode())

    def __hash__(self) -> int:
        return hash(self._text)


@final
class Hidden(str):
    """Text that came out of a `${file:}`: text to those who use it, a mask to those who print its owner."""

    __slots__ = ()

    def __repr__(self) -> str:
        return repr(MASK)
