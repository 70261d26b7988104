"""A configuration file as read: its nodes, and the files it depended on."""

import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn

from tailrace.proxy.config.flaws import ConfigError, Flaw
from tailrace.proxy.config.interpolation import LARGEST_FILE, Interpolation
from tailrace.proxy.config.node import Node, Origin
from tailrace.proxy.config.tree import build

# What YAML allows; anything else would stop its reader without a line number.
_UNPRINTABLE: Final = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One file, parsed and interpolated, not yet decoded.

    Faults that leave the tree whole (an unset variable, a key that stands twice) are reported when a node is decoded.
    """

    path: Path
    root: Node
    files: tuple[Path, ...]
    """The file itself and every `${file:}`: a change of one of them is a change of the configuration."""


def read(path: str | Path, *, environ: Mapping[str, str] = os.environ) -> Source:
    """Read a YAML file; a ConfigError says why no tree could be had."""
    return parse(text_of(path), str(path), environ=environ)


def text_of(path: str | Path, *, regular: bool = False) -> str:
    """The text of a configuration file, not yet parsed; a ConfigError says why it could not be had.

    One that has to be `regular` is no pipe or device, which could keep its reader waiting, or never end.
    """
    name = str(path)
    try:
        with open(path, "rb", opener=_at_once if regular else None) as file:
            if regular and not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                _refuse(name, 1, "it is not a regular file")
            content = file.read(LARGEST_FILE + 1)
    except (OSError, ValueError) as error:
        _refuse(name, 1, f"the file cannot be read: {getattr(error, 'strerror', None) or error}")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        _refuse(name, content.count(b"\n", 0, error.start) + 1, "the file is not UTF-8 text")


def _at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def parse(
    text: str, name: str, *, environ: Mapping[str, str] = os.environ, look: bool = False, elsewhere: bool = False
) -> Source:
    """Parse YAML text as if it stood in the file `name`, next to which relative `${file:}` paths are looked up.

    With `look`, decoding asks the `look` hooks, too: whether what the file names outside itself is there.
    With `elsewhere`, a `${file:}` that is not there stands for some text that nobody knows.
    """
    if len(text) > LARGEST_FILE or len(text.encode(errors="replace")) > LARGEST_FILE:
        _refuse(name, 1, f"the file is larger than {LARGEST_FILE >> 20} MiB")
    if stray := _UNPRINTABLE.search(text):
        _refuse(
            name,
            text.count("\n", 0, stray.start()) + 1,
            f"the character U+{ord(stray[0]):04X} cannot stand in a YAML file",
        )
    origin = Origin(name, looks=look)
    interpolation = Interpolation(environ, origin.folder, elsewhere=elsewhere)
    root = build(text, origin, interpolation)
    if root is None or root.is_null:
        _refuse(name, 1, "the file is empty: expected a mapping")
    if root.kind != "mapping":
        _refuse(name, root.line, f"expected a mapping at the top, got {root.describe()}")
    return Source(path=Path(name), root=root, files=(Path(name), *interpolation.files))


def text_node(text: str) -> Node:
    """Text that stands alone, as a value of a command line does, as the value of a file."""
    node = Node("scalar", Origin(""), 1)
    node.text = node.written = text
    return node


def _refuse(file: str, line: int, text: str) -> NoReturn:
    raise ConfigError((Flaw(file, line, text),))
