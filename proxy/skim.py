"""Long JSON bodies judged with SIMD instructions: names and short values of the top level, and whether all is JSON.

simdjson checks syntax, strings and UTF-8 several times faster than a walk from byte to byte, but does not say where a
value stands in the text. Most requests are passed on as they are, so that nobody asks; the walk is made when one does.
"""

from __future__ import annotations

from typing import Any, Final

from simdjson import Object, Parser

SHORTEST: Final = 8 * 1024
LONGEST: Final = 1024 * 1024
"""A parser keeps some 14 bytes for each byte of the longest body that it has seen."""
MOST: Final = 128
"""Each name is looked up among all the others: those of a large body would take the whole process for many seconds."""
LATER: Final = object()
"""Stands for a value that has to be read from the text."""
_BULK: Final = frozenset({"messages", "input", "prompt", "tools", "documents", "texts", "system", "instructions"})
_SHORT: Final = frozenset({str, bool, int, type(None)})
_parser: Final = Parser(LONGEST)


def skim(raw: bytes) -> dict[str, Any] | None:
    """What the top level of a JSON object holds, by name; None where only the exact reading can decide.

    That is so for what is no JSON object, has a name twice or with a NUL, or more than MOST, or goes beyond what the
    parser takes (its integers have 64 bits). A value that is neither short nor exact is LATER.
    """
    if not raw.startswith(b"{"):
        return None
    try:
        found = _parser.parse(raw)
        assert isinstance(found, Object)
        names = list(found)
        if len(names) > MOST or "\0" in "".join(names):
            return None  # a name is looked for from the first on, and to its first NUL
        values = {name: LATER if name in _BULK else found[name] for name in names}
    except (ValueError, RuntimeError, TypeError, MemoryError):
        return None
    if len(values) != len(names):
        return None
    return {name: value if type(value) in _SHORT else LATER for name, value in values.items()}
