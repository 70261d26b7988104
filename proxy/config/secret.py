"""Values that no rendering, repr or fault may show."""

import hmac
import re
from typing import Final, final

from tailrace.proxy.headers import is_secret_parameter

MASK: Final = "***"
_CAPITAL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_WORDS: Final = re.compile(r"[-_. ]+")
_ANYWHERE: Final = re.compile("credential|passwd|password|secret")
_ENDS: Final = frozenset({"key", "keys", "pass", "passphrase", "pw", "pwd", "secrets", "tokens"})
# What stands before the host of a URL. A password may hold a slash that nobody escaped: then no port stands there.
_USERINFO: Final = re.compile(r"""(?<=://)(?:[^\s/?#'"]*|[^\s/?#'"@:]*:(?![0-9]*(?:[/?#]|$))[^\s'"]*)@""")


def looks_secret(name: str) -> bool:
    """Whether a value under this name, of a header, a variable or a flag, is a credential as far as one can tell."""
    low = _CAPITAL.sub("-", name).lower()
    if _ANYWHERE.search(low) or _WORDS.split(low)[-1] in _ENDS:
        return True
    return is_secret_parameter(low.encode(errors="replace"))


def without_userinfo(text: str) -> str:
    """Text with the user and password of every URL in it masked."""
    return _USERINFO.sub(f"{MASK}@", text) if "@" in text else text


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


def shown(text: str) -> str:
    """Text as it may be printed."""
    return MASK if isinstance(text, Hidden) else without_userinfo(text)
