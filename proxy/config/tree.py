"""Builds the nodes of a file from YAML's events, within bounds.

Events, not `yaml.compose`, which recurses as deep as the text nests and builds all of it before anybody can count.
"""

import re
from collections.abc import Iterator
from typing import Any, Final, NoReturn

import yaml
from tailrace.proxy.config.flaws import ConfigError, Flaws, Place, name, quote
from tailrace.proxy.config.interpolation import Interpolation
from tailrace.proxy.config.node import Kind, Node, Origin
from tailrace.proxy.config.secret import looks_secret

DEEPEST: Final = 40
# Above what an honest file of the largest size holds.
MOST_NODES: Final = 200_000
MOST_ALIASED_NODES: Final = 10_000

_QUOTED: Final = re.compile(r""""[^"\n]*"|'[^'\n]*'|(?:^|(?<=\s))#.*""", re.MULTILINE)
_REFERENCE: Final = re.compile(r"[^\s,\[{]*\$\{[^}\n]*\}[^\s,\]}]*")

_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_PREFIX: Final = "tag:yaml.org,2002:"
_TEXT_TAGS: Final = frozenset({"!", _PREFIX + "str"})
_OTHER_TAGS: Final = frozenset(_PREFIX + tag for tag in ("int", "float", "bool", "null", "seq", "map"))


def build(text: str, origin: Origin, interpolation: Interpolation) -> Node | None:
    """The root of the file's one document, None if there is none; raises ConfigError when no tree can be made of it."""
    builder = _Builder(origin, interpolation)
    try:
        for event in _events(text):
            builder.take(event)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        said = ", ".join(part for part in (error.context, error.problem) if part)
        line = mark.line + 1 if mark else 1
        builder.stop(_Spot(origin, line), f"not YAML: {said}{_tab(text, error)}{_unquoted(text, error)}")
    except yaml.YAMLError as error:
        builder.stop(_Spot(origin, 1), f"not YAML: {getattr(error, 'reason', 'unreadable')}")
    return builder.root


def _tab(text: str, error: yaml.MarkedYAMLError) -> str:
    """A hint where the character that YAML cannot use is a tab, which looks like the spaces that it wants."""
    mark, problem = error.problem_mark, error.problem or ""
    if mark is None or " tab " in problem:
        return ""
    line = "".join(text.splitlines()[mark.line : mark.line + 1])
    return "; it is a tab, and only spaces may indent" if line[mark.column :][:1] == "\t" else ""


def _unquoted(text: str, error: yaml.MarkedYAMLError) -> str:
    """A hint where a reference stands unquoted in `{…}` or `[…]`, whose braces YAML takes for its own."""
    marks = [mark.line for mark in (error.context_mark, error.problem_mark) if mark is not None]
    if not marks or "flow" not in (error.context or ""):
        return ""
    bare = _QUOTED.sub("", "\n".join(text.splitlines()[min(marks) : max(marks) + 1]))
    reference = _REFERENCE.search(bare)
    return "" if reference is None else f"; quote it: {quote(reference[0])}"


def _events(text: str) -> Iterator[yaml.Event]:
    return yaml.parse(text, Loader=_LOADER)


class _Spot:
    """A line that no node stands for."""

    __slots__ = ("file", "line", "where")

    def __init__(self, origin: Origin, line: int) -> None:
        self.file = origin.file
        self.line = line
        self.where = ""


class _Open:
    """A mapping or list whose end was not met yet."""

    __slots__ = ("height", "key", "length", "merges", "node", "size")

    def __init__(self, node: Node) -> None:
        self.node = node
        self.key: Node | None = None
        self.length = 0
        self.merges: list[Node] = []
        self.size = 1
        self.height = 1

    def wants_key(self) -> bool:
        return self.node.kind == "mapping" and self.key is None

    def step(self) -> str | int | None:
        if self.node.kind == "sequence":
            return self.length
        return self.key.text if self.key else None


class _Builder:
    def __init__(self, origin: Origin, interpolation: Interpolation) -> None:
        self.root: Node | None = None
        self._origin = origin
        self._interpolation = interpolation
        self._open: list[_Open] = []
        self._anchors: dict[str, Node] = {}
        self._nodes = 0
        self._aliased = 0

    def stop(self, place: Place, text: str) -> NoReturn:
        flaws = Flaws()
        flaws.add(place, text)
        flaws.extend(self._origin.flaws)
        raise ConfigError(flaws)

    def take(self, event: yaml.Event) -> None:
        line = event.start_mark.line + 1 if event.start_mark else 1
        if isinstance(event, yaml.AliasEvent):
            self._attach(self._aliased_node(event.anchor, line))
        elif isinstance(event, yaml.ScalarEvent):
            node = self._node("scalar", event, line)
            self._fill(node, event)
            node.size = node.height = 1
            self._attach(node)
        elif isinstance(event, yaml.MappingStartEvent):
            self._open.append(_Open(self._node("mapping", event, line)))
        elif isinstance(event, yaml.SequenceStartEvent):
            self._open.append(_Open(self._node("sequence", event, line)))
        elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
            self._close()
        elif isinstance(event, yaml.DocumentStartEvent) and self.root is not None:
            self.stop(_Spot(self._origin, line), "a second document begins (`---`): one file holds one")

    def _node(self, kind: Kind, event: yaml.NodeEvent, line: int) -> Node:
        frame = self._open[-1] if self._open else None
        up, step = (frame.node, frame.step()) if frame else (None, None)
        node = Node(kind, self._origin, line, up, step)
        self._nodes += 1
        if self._nodes > MOST_NODES:
            self.stop(_Spot(self._origin, line), f"the file holds more than {MOST_NODES} values")
        if len(self._open) >= DEEPEST:
            self.stop(_Spot(self._origin, line), f"nested more than {DEEPEST} levels deep")
        tag = getattr(event, "tag", None)
        if tag in _TEXT_TAGS:
            node.quoted = True
        elif tag is not None and tag not in _OTHER_TAGS:
            node.broken = True
            self._origin.flaws.add(node, f"the tag {name(tag)} means nothing here")
        if event.anchor is not None:
            self._anchors[event.anchor] = node
        return node

    def _fill(self, node: Node, event: yaml.ScalarEvent) -> None:
        node.text = node.written = event.value
        node.quoted |= event.style in ("'", '"', "|", ">")
        if self._open and self._open[-1].wants_key():
            return
        expanded = self._interpolation.expand(event.value)
        node.text = expanded.text
        node.hidden = expanded.hidden or (expanded.inserted and looks_secret(self._name_above()))
        node.inserted = expanded.inserted
        node.absent = expanded.absent
        # In `{n: "${N}"}` the quotes are there because YAML demands them: they say nothing about the type.
        node.quoted &= not expanded.whole
        # A credential that turned out empty must not pass as "none was asked for"; `${NAME:-}` says that it may.
        node.quoted |= expanded.inserted and not expanded.text and ":-" not in event.value
        for fault in expanded.faults:
            node.broken = True
            self._origin.flaws.add(node, fault)

    def _name_above(self) -> str:
        """The key under which the next value stands, alone or in a list."""
        return next((frame.key.text for frame in reversed(self._open) if frame.key is not None), "")

    def _aliased_node(self, anchor: str | None, line: int) -> Node:
        spot = _Spot(self._origin, line)
        anchor = anchor or ""
        node = self._anchors.get(anchor)
        if node is None:
            self.stop(spot, f"the alias {name('*' + anchor)} names nothing above it")
        if not node.size:
            self.stop(spot, f"the alias {name('*' + anchor)} stands inside what it names")
        self._aliased += node.size
        if self._aliased > MOST_ALIASED_NODES:
            self.stop(spot, f"aliases bring in more than {MOST_ALIASED_NODES} values")
        if len(self._open) + node.height > DEEPEST:
            self.stop(spot, f"nested more than {DEEPEST} levels deep")
        return node

    def _attach(self, node: Node) -> None:
        if not self._open:
            self.root = node
            return
        frame = self._open[-1]
        frame.size += node.size
        frame.height = max(frame.height, node.height + 1)
        if frame.node.kind == "sequence":
            frame.node.append(node)
            frame.length += 1
        elif frame.key is None:
            if node.kind != "scalar":
                self.stop(node, "a key must be text")
            frame.key = node
        else:
            key, frame.key = frame.key, None
            self._pair(frame, key, node)

    def _pair(self, frame: _Open, key: Node, value: Node) -> None:
        if key.text == "<<" and not key.quoted:
            frame.merges.append(value)
            return
        first = frame.node.pair(key.text)
        if first is None:
            frame.node.put(key, value)
        else:
            self._origin.flaws.add(key, f"the key {name(key.text)} stands here twice (first on line {first[0].line})")

    def _close(self) -> None:
        frame = self._open.pop()
        for merged in frame.merges:
            self._merge(frame.node, merged)
        frame.node.size = frame.size
        frame.node.height = frame.height
        self._attach(frame.node)

    def _merge(self, into: Node, merged: Node) -> None:
        for source in merged.elements() if merged.kind == "sequence" else (merged,):
            if source.kind != "mapping":
                self._origin.flaws.add(source, "`<<` takes a mapping, or a list of mappings")
                continue
            for key, value in source.items():
                if into.get(key.text) is None:
                    into.put(key, value)
