"""A file with a list of workers, as programs and people write it: YAML or JSON, a list or a mapping with `workers`.

An entry is a URL or {url, weight, region}; one whose URL is empty says that a worker has no address any more, and
stands for none. A file that is empty, without even a list in it, is one that somebody is just writing, and no list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final

import orjson
from tailrace.proxy.address import Address, AddressError
from tailrace.proxy.config import At, AtLeast, AtMost, ConfigError, Flaws, decode_as, setting, text_of
from tailrace.proxy.config.interpolation import LARGEST_FILE, Interpolation
from tailrace.proxy.config.node import Node, Origin
from tailrace.proxy.config.tree import build
from tailrace.proxy.discovery.beside import LIMIT, in_time
from tailrace.proxy.discovery.endpoint import HEAVIEST, LIGHTEST, MOST, Endpoint

UNREAD: Final = f"it could not be read within {LIMIT:g} s"


class ListingError(Exception):
    """The file holds no list of workers; the text says why, and where."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """One worker of the file."""

    shorthand: ClassVar[str] = "url"

    url: str | None = setting(help="http://HOST:PORT, https://HOST:PORT or unix:/PATH")
    weight: Annotated[float, AtLeast(LIGHTEST), AtMost(HEAVIEST)] | None = setting(
        default=None, help="in place of the entry's own"
    )
    region: str | None = setting(default=None, help="in place of the entry's own")

    def check(self) -> Iterable[At]:
        """Faults of the URL."""
        if self.url:
            try:
                Address.parse(self.url)
            except AddressError as error:
                yield At(str(error), "url")


def read_listing(path: Path) -> tuple[Endpoint, ...]:
    """The workers that a file lists now, each once; raises ListingError."""
    return _understood_of(partial(text_of, path, regular=True), path)


def read_in_time(path: Path) -> tuple[Endpoint, ...]:
    """The same, of a file that can be read in a moment only: for whoever has nobody else to wait for it."""
    try:
        return _understood_of(partial(in_time, partial(text_of, path, regular=True)), path)
    except TimeoutError:
        raise ListingError(f"{path}: {UNREAD}") from None


def _understood_of(text: Callable[[], str], path: Path) -> tuple[Endpoint, ...]:
    try:
        return _understood(text(), path)
    except ConfigError as error:
        # One line: it goes into a log, or behind the place where the file is named.
        raise ListingError("; ".join(str(error).splitlines()[:3])) from None


def _understood(text: str, path: Path) -> tuple[Endpoint, ...]:
    if len(text) > LARGEST_FILE:
        raise ListingError(f"{path}: the file is larger than {LARGEST_FILE >> 20} MiB")
    root = build(_spaced(text), Origin(str(path)), Interpolation({}, path.parent))
    if root is None or root.is_null:
        raise ListingError(f"{path}: the file is empty; write [] where there is no worker at all")
    flaws = Flaws()
    listed = decode_as(tuple[Listed, ...], _list_in(root, path), flaws)
    flaws.raise_if_any()
    found = {Address.parse(each.url).shown: Endpoint(each.url, each.weight, each.region) for each in listed if each.url}
    if len(found) > MOST:
        raise ListingError(f"{path}: {len(found)} workers are more than the {MOST} that a file may list")
    return tuple(found.values())


def _list_in(root: Node, path: Path) -> Node:
    if root.kind != "mapping":
        return root
    listed = root.get("workers")
    if listed is None or len(tuple(root.items())) != 1:
        raise ListingError(f"{path}: expected a list of workers, or a mapping with the one key 'workers'")
    return listed


def _spaced(text: str) -> str:
    """JSON without the tabs that it may be indented by, which YAML does not take."""
    if "\t" not in text:
        return text
    try:
        plain: Any = orjson.loads(text)
    except orjson.JSONDecodeError:
        return text
    return orjson.dumps(plain, option=orjson.OPT_INDENT_2).decode()
