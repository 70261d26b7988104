"""For the `redact` plugin: text and JSON text that arrive in pieces, with what matches replaced.

Both scanners give the same text in all however it was cut. They hold back what may be the beginning of a match.
"""

from __future__ import annotations

import re
from typing import Protocol

import orjson
from tailrace.plugins.redact_patterns import Patterns

_LONGEST_WORD = 4096
_STRUCTURE = re.compile(r"""(?P<marks>[\s{}\[\],:]+)|(?P<quote>")|(?P<word>[^\s{}\[\],:"]{1,4096})""")
_IN_STRING = re.compile(r'[^"\\]+|"|\\u[0-9a-fA-F]{4}|\\[^u]|\\u(?![0-9a-fA-F]{0,3}\Z)')
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


class Scanner(Protocol):
    """One text of an answer."""

    touched: bool
    """Whether anything was replaced."""

    @property
    def pending(self) -> bool:
        """Whether something is held back."""

    def feed(self, piece: str, *, final: bool = False) -> str:
        """What is decided of all that came so far and was not given yet; all of it where this is the end."""


class Plain:
    """Text as people read it."""

    __slots__ = ("_at", "_patterns", "_text", "touched")

    def __init__(self, patterns: Patterns) -> None:
        self.touched = False
        self._patterns = patterns
        self._text = ""
        self._at = 0

    @property
    def pending(self) -> bool:
        """Whether something is held back."""
        return self._at < len(self._text)

    def feed(self, piece: str, *, final: bool = False) -> str:
        """See Scanner."""
        text, at = self._text + piece, self._at
        cuts, end = self._patterns.decide(text, at, final=final)
        out = []
        for cut in cuts:
            out += [text[at : cut.start], cut.replacement]
            at = cut.end
        self.touched = self.touched or bool(cuts)
        end = max(at, end)
        out.append(text[at:end])
        # A little of what was given stays, for expressions that look back.
        kept = max(0, end - self._patterns.behind)
        self._text, self._at = text[kept:], end - kept
        return "".join(out)


class Arguments:
    """JSON text, such as a tool call's arguments: strings are searched as what they mean, and stay strings.

    A number, or a word that is no JSON at all, is searched when it is whole; a match makes it a string.
    """

    __slots__ = ("_at", "_in_string", "_patterns", "_pieces", "_rest", "_text", "touched")

    def __init__(self, patterns: Patterns) -> None:
        self.touched = False
        self._patterns = patterns
        self._in_string = False
        self._rest = ""
        self._text = ""
        self._at = 0
        self._pieces: list[str] = []

    @property
    def pending(self) -> bool:
        """Whether something is held back."""
        return bool(self._rest or self._pieces)

    def feed(self, piece: str, *, final: bool = False) -> str:
        """See Scanner."""
        source = self._rest + piece
        self._rest = ""
        out: list[str] = []
        at = 0
        while at < len(source):
            step = self._string if self._in_string else self._structure
            at = step(source, at, out, final)
        if self._in_string:
            out.append(self._settle(final=final))
        return "".join(out)

    def _structure(self, source: str, at: int, out: list[str], final: bool) -> int:
        found = _STRUCTURE.match(source, at)
        assert found is not None
        token, end = found[0], found.end()
        if found.lastgroup == "quote":
            self._in_string = True
            self._text, self._at = "", 0
        elif found.lastgroup == "word":
            if end == len(source) and not final and len(token) < _LONGEST_WORD:
                self._rest = token
                return end
            token = self._word(token)
        out.append(token)
        return end

    def _word(self, token: str) -> str:
        whole = Plain(self._patterns)
        replaced = whole.feed(token, final=True)
        if not whole.touched:
            return token
        self.touched = True
        return orjson.dumps(replaced).decode()

    def _string(self, source: str, at: int, out: list[str], final: bool) -> int:
        found = _IN_STRING.match(source, at)
        if found is None:
            # An escape that is cut; one that never ends is passed on as it is.
            if final:
                self._take(source[at:], source[at:])
            else:
                self._rest = source[at:]
            return len(source)
        written = found[0]
        if written == '"':
            out += [self._settle(final=True), written]
            self._in_string = False
        elif written[0] != "\\":
            self._take(written, written)
        elif len(written) == 6:
            self._take(chr(int(written[2:], 16)), written)
        else:
            self._take(_ESCAPES.get(written[1], written[1]), written)
        return found.end()

    def _take(self, meaning: str, written: str) -> None:
        self._text += meaning
        self._pieces += written if len(meaning) == len(written) else [written]

    def _settle(self, *, final: bool) -> str:
        """What is decided of the open string, as it was written."""
        text, at = self._text, self._at
        cuts, end = self._patterns.decide(text, at, final=final)
        base, out = at, []
        for cut in cuts:
            out += [*self._pieces[at - base : cut.start - base], orjson.dumps(cut.replacement).decode()[1:-1]]
            at = cut.end
        self.touched = self.touched or bool(cuts)
        end = max(at, end)
        out += self._pieces[at - base : end - base]
        del self._pieces[: end - base]
        kept = max(0, end - self._patterns.behind)
        self._text, self._at = text[kept:], end - kept
        return "".join(out)
