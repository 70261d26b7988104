"""For the `redact` plugin: the regular expression of everything that may still become a match.

A stream is cut anywhere, so the question at its present end is: from where on could the text be the beginning of a
match? The answer is a second expression, made from the first one's parse tree: it matches where a text ends, by `\\Z`,
inside the first one. `a{2,3}b` becomes `a{0,2}\\Z|a{2,3}\\Z`. Whatever looks at what follows (`\\b`, a lookahead) is
undecided while the text ends there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from re import _constants as op  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

_CATEGORIES = {
    op.CATEGORY_DIGIT: r"\d",
    op.CATEGORY_NOT_DIGIT: r"\D",
    op.CATEGORY_SPACE: r"\s",
    op.CATEGORY_NOT_SPACE: r"\S",
    op.CATEGORY_WORD: r"\w",
    op.CATEGORY_NOT_WORD: r"\W",
}
_BOUNDARIES = {op.AT_BOUNDARY: r"\b", op.AT_NON_BOUNDARY: r"\B"}
_FLAGS = {re.IGNORECASE: "i", re.MULTILINE: "m", re.DOTALL: "s", re.ASCII: "a"}
_CHARACTERS = (op.LITERAL, op.NOT_LITERAL, op.ANY, op.IN)
_HERE = r"\Z"


@dataclass(frozen=True, slots=True)
class Analysed:
    """An expression and its beginnings, both without groups, and how far it looks back at most."""

    whole: str
    begun: str | None
    behind: int


def analysed(pattern: str, longest: int) -> Analysed:
    """Take an expression apart; raises ValueError where a stream cannot be searched for it."""
    try:
        tree = parser.parse(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"it is no regular expression: {error}") from None
    shortest, most = tree.getwidth()
    if not shortest:
        raise ValueError("it matches empty text")
    if most > longest:
        raise ValueError(f"its matches may be longer than {longest} characters; bound its repetitions, as in {{1,64}}")
    flags = tree.state.flags
    behind = [1, *_widths(tree, longest)]
    return Analysed(_scoped(_whole(tree), flags), _scoped(_begun(tree), flags), max(behind))


def _widths(tree: Any, longest: int) -> Iterable[int]:
    """The widths of everything that looks back; whatever looks ahead must be bounded too."""
    for kind, argument in tree:
        if kind in (op.ASSERT, op.ASSERT_NOT):
            width = argument[1].getwidth()[1]
            if width > longest:
                raise ValueError(f"it looks further than {longest} characters")
            if argument[0] < 0:
                yield width
        for part in _parts(kind, argument):
            yield from _widths(part, longest)


def _parts(kind: Any, argument: Any) -> Iterable[Any]:
    if kind is op.BRANCH:
        return argument[1]  # type: ignore[no-any-return]
    if kind is op.SUBPATTERN:
        return (argument[3],)
    if kind in (op.MAX_REPEAT, op.MIN_REPEAT):
        return (argument[2],)
    if kind in (op.ASSERT, op.ASSERT_NOT):
        return (argument[1],)
    return ()


def _scoped(source: str | None, flags: int) -> Any:
    if source is None:
        return None
    return f"(?{''.join(letter for flag, letter in _FLAGS.items() if flags & flag)}:{source})"


def _whole(tree: Any) -> str:
    """The source of a sequence."""
    return "".join(_source(kind, argument) for kind, argument in tree)


def _source(kind: Any, argument: Any) -> str:
    if kind is op.LITERAL:
        return re.escape(chr(argument))
    if kind is op.NOT_LITERAL:
        return f"[^{_in_set(chr(argument))}]"
    if kind is op.ANY:
        return "."
    if kind is op.IN:
        return f"[{''.join(_member(*member) for member in argument)}]"
    if kind is op.AT and argument in _BOUNDARIES:
        return _BOUNDARIES[argument]
    if kind is op.BRANCH:
        return f"(?:{'|'.join(map(_whole, argument[1]))})"
    if kind is op.SUBPATTERN:
        return _flagged(_whole(argument[3]), argument)
    if kind in (op.MAX_REPEAT, op.MIN_REPEAT):
        least, most, part = argument
        return f"(?:{_whole(part)}){{{least},{most}}}{'?' if kind is op.MIN_REPEAT else ''}"
    if kind in (op.ASSERT, op.ASSERT_NOT):
        return f"(?{'<' if argument[0] < 0 else ''}{'=' if kind is op.ASSERT else '!'}{_whole(argument[1])})"
    if kind is op.AT:
        raise ValueError("it has an anchor (^, $, \\A, \\Z), which means nothing in text that comes in pieces")
    raise ValueError("it refers to its own groups, or gives nothing back: neither can be searched for in a stream")


def _flagged(source: str, argument: Any) -> str:
    added, removed = argument[1], argument[2]
    on = "".join(letter for flag, letter in _FLAGS.items() if added & flag)
    off = "".join(letter for flag, letter in _FLAGS.items() if removed & flag)
    return f"(?{on}{'-' + off if off else ''}:{source})"


def _in_set(character: str) -> str:
    return "\\" + character if character in r"\]^-[&~|" else character


def _member(kind: Any, argument: Any) -> str:
    if kind is op.NEGATE:
        return "^"
    if kind is op.LITERAL:
        return _in_set(chr(argument))
    if kind is op.RANGE:
        return f"{_in_set(chr(argument[0]))}-{_in_set(chr(argument[1]))}"
    return _CATEGORIES[argument]


def _begun(tree: Any) -> str | None:
    """The beginnings of a sequence: those of its first part, or all of that and the beginnings of the rest."""
    rest: str | None = None
    for kind, argument in reversed(list(tree)):
        ways = [
            way
            for way in (_begun_part(kind, argument), None if rest is None else _source(kind, argument) + rest)
            if way
        ]
        rest = f"(?:{'|'.join(ways)})" if ways else None
    return rest


def _begun_part(kind: Any, argument: Any) -> str | None:
    if kind in _CHARACTERS or kind is op.AT:
        return _HERE
    if kind is op.BRANCH:
        ways = [way for way in map(_begun, argument[1]) if way]
        return f"(?:{'|'.join(ways)})" if ways else None
    if kind is op.SUBPATTERN:
        inner = _begun(argument[3])
        return None if inner is None else _flagged(inner, argument)
    if kind in (op.ASSERT, op.ASSERT_NOT):
        return None if argument[0] < 0 else _begun(argument[1])
    if kind in (op.MAX_REPEAT, op.MIN_REPEAT):
        part, most = argument[2], argument[1]
        inner = _begun(part)
        if inner is None or not most:
            return None
        # Of single characters, fewer than can be had do not reach the end either: nothing to give back.
        kept = "+" if len(part) == 1 and part[0][0] in _CHARACTERS else ""
        return f"(?:{_whole(part)}){{0,{most - 1}}}{kept}{inner}"
    return None
