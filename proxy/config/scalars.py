"""The type of an unquoted scalar.

YAML 1.1 as PyYAML reads it makes a boolean of `on`, an octal of `010` and a base-60 number of `12:30`. Here text is a
boolean or a number only when nobody could read it otherwise; the rest stays text, and a field that wants something else
says so.
"""

import math
import re
from typing import Final, TypeAlias

Scalar: TypeAlias = bool | int | float | str | None

_WORDS: Final[dict[str, bool | None]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
# Twenty characters hold any 64-bit number; more would cost quadratic time to convert.
_WHOLE: Final = re.compile(r"[-+]?(?:0|[1-9][0-9_]{0,19})", re.ASCII)
_HEX: Final = re.compile(r"0x[0-9a-fA-F]{1,16}", re.ASCII)
_NUMBER: Final = re.compile(
    r"[-+]?(?:[0-9]{1,40}\.[0-9]{0,40}|\.[0-9]{1,40}|[0-9]{1,40}(?=[eE]))(?:[eE][-+]?[0-9]{1,4})?", re.ASCII
)


def typed(text: str) -> Scalar:
    """What unquoted text means; never infinite, never not-a-number."""
    if text in _WORDS:
        return _WORDS[text]
    if _WHOLE.fullmatch(text):
        return int(text.replace("_", ""))
    if _HEX.fullmatch(text):
        return int(text, 16)
    if _NUMBER.fullmatch(text):
        number = float(text)
        return number if math.isfinite(number) else text
    return text
