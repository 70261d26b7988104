"""What can be written under `workers`: a worker's URL, or where the workers are to be found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from tailrace.proxy.address import Address, AddressError
from tailrace.proxy.config import At, AtLeast, AtMost, Matching, Seconds, setting
from tailrace.proxy.discovery.endpoint import HEAVIEST, LIGHTEST
from tailrace.proxy.discovery.listing import ListingError, read_in_time

GROUP = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Name:
    """A host name that has an address for each worker."""

    shorthand: ClassVar[str] = "url"

    url: str = setting(help="http://NAME:PORT or https://NAME:PORT; each address of the name is a worker")
    every: Annotated[Seconds, AtLeast(1)] = setting(
        default=5.0, help="how often the name is looked up", why="name servers cache; a worker that is gone is retried"
    )
    keep: Seconds = setting(
        default=300.0,
        help="how long the last addresses count once the name is gone",
        why="a name server's mistake must not empty a pool",
    )

    def check(self) -> Iterable[At]:
        """Faults of the URL."""
        try:
            address = Address.parse(self.url)
        except AddressError as error:
            yield At(str(error), "url")
            return
        if not address.named:
            yield At(f"'{self.url}' has no name in it that could be looked up: write the URL itself", "url")


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """Sidecars that say themselves where they are."""

    shorthand: ClassVar[str] = "group"

    group: Annotated[str, Matching(GROUP, "letters, digits, '.', '_' and '-'")] = setting(
        help="the group that sidecars register for, as `register.group` in their files says"
    )
    lease: Annotated[Seconds, AtLeast(1)] = setting(
        default=15.0,
        help="a sidecar that was not heard of for so long is removed",
        why="it says so three times in that time; a dead one is seen long before",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerEntry:
    """One worker, or where several are to be found."""

    shorthand: ClassVar[str] = "url"

    url: str | None = setting(
        default=None, help="a sidecar or bare engine: http://HOST:PORT, https://HOST:PORT or unix:/PATH"
    )
    file: Path | None = setting(
        default=None, help="or a YAML or JSON file with a list of URLs or {url, weight, region}, followed as it changes"
    )
    dns: Name | None = setting(default=None, help="or a name with an address for each worker")
    registered: Registered | None = setting(default=None, help="or the group that sidecars register for")
    weight: Annotated[float, AtLeast(LIGHTEST), AtMost(HEAVIEST)] = setting(
        default=1.0, help="how many calls it gets beside others, for plugins that choose by weight"
    )
    region: str = setting(default="", help="where it is, for plugins that choose by region")

    def check(self) -> Iterable[str | At]:
        """Exactly one way to find workers, and faults of a URL."""
        given = [way for way in (self.url, self.file, self.dns, self.registered) if way is not None]
        if len(given) != 1:
            yield "give exactly one of `url`, `file`, `dns` and `registered`"
        if self.url is not None:
            try:
                Address.parse(self.url)
            except AddressError as error:
                yield At(str(error), "url")

    def look(self) -> Iterable[At]:
        """A file that is not there, or has a fault."""
        if self.file is not None:
            try:
                read_in_time(self.file)
            except ListingError as error:
                yield At(str(error), "file")

    def to_plain(self) -> Any:
        """A URL alone where nothing else is said."""
        plain: dict[str, Any] = {}
        for key in ("url", "file", "dns", "registered"):
            value = getattr(self, key)
            if isinstance(value, Name):
                plain[key] = {"url": value.url, "every": value.every, "keep": value.keep}
            elif isinstance(value, Registered):
                plain[key] = {"group": value.group, "lease": value.lease}
            elif value is not None:
                plain[key] = str(value)
        if self.weight != 1.0:
            plain["weight"] = self.weight
        if self.region:
            plain["region"] = self.region
        return self.url if plain.keys() == {"url"} else plain

    @property
    def source(self) -> str:
        """The key of what it finds, empty for a URL, which is found at once; two entries may share one."""
        if self.file is not None:
            return f"file {self.file}"
        if self.dns is not None:
            return f"dns {self.dns.url}"
        return f"registered {self.registered.group}" if self.registered is not None else ""

    @property
    def shown(self) -> str:
        """What it is, for whoever reads a summary."""
        if self.file is not None:
            return f"file {self.file}, followed as it changes"
        if self.dns is not None:
            return f"dns {self.dns.url}, looked up every {self.dns.every:g} s, kept for {self.dns.keep:g} s when gone"
        if self.registered is not None:
            return f"sidecars that register for '{self.registered.group}', each for {self.registered.lease:g} s"
        return self.url or ""


def urls(entries: Iterable[WorkerEntry]) -> Iterator[tuple[int, str]]:
    """The URLs that stand in a list themselves, with their places."""
    for number, entry in enumerate(entries):
        if entry.url is not None:
            yield number, entry.url


def repeated(entries: Iterable[WorkerEntry]) -> Iterable[At]:
    """What a list under `workers` holds twice."""
    seen: set[str] = set()
    for number, entry in enumerate(entries):
        shown, told = entry.source, f"'{entry.source}' is listed twice"
        if entry.url is not None:
            try:
                shown = Address.parse(entry.url).shown
            except AddressError:
                continue
            told = f"'{entry.url}' is listed twice ({shown})"
        if shown in seen:
            yield At(told, "workers", number)
        seen.add(shown)


def sources(pools: Mapping[str, Iterable[WorkerEntry]]) -> dict[str, WorkerEntry]:
    """The entries that have to be followed, by their keys."""
    found: dict[str, WorkerEntry] = {}
    for entries in pools.values():
        for entry in entries:
            if entry.source:
                found.setdefault(entry.source, entry)
    return found
