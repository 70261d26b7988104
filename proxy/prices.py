"""The file of prices: what the tokens of each model cost, for which class, from when until when.

currency: EUR
zone: Europe/Berlin              # in which the dates begin; UTC where none is given
prices:
  - {model: llama, prompt: 0.50, cached_prompt: 0.05, completion: 1.50}
  - {model: llama, class: batch, prompt: 0.25, completion: 0.75, per_request: 0.0001, from: 2027-01-01}
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Annotated, Final
from zoneinfo import ZoneInfo

from tailrace.proxy import money
from tailrace.proxy.config import At, Matching, NotEmpty, Parsed, decode_source, parse, setting, text_of
from tailrace.proxy.tariff import Tariff

_NANO: Final = 10**9
_EVER: Final = 2**63 - 1
Name = Annotated[str, NotEmpty()]


class Price(int):
    """Nano-units, written as money is."""

    @classmethod
    def read(cls, text: str) -> Price:
        """From a decimal text; raises ValueError."""
        nano = money.parse(text)
        if nano > _EVER:
            raise ValueError("more than 64 bits hold")
        return cls(nano)

    def __str__(self) -> str:
        return money.render(self)


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (OSError, LookupError) as error:
        raise ValueError(name) from error


Amount = Annotated[
    Price, Parsed(Price.read, "an amount such as 12.50, below nine billion, with at most nine digits behind the point")
]
Day = Annotated[date, Parsed(date.fromisoformat, "a date such as 2027-01-31")]
Zone = Annotated[ZoneInfo, Parsed(_zone, "a time zone such as UTC or Europe/Berlin")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """The prices of one model for a time; those of tokens are for a million of them."""

    model: Name = setting(help="the model's name, as clients ask for it")
    service_class: str | None = setting(default=None, key="class", help="only for this class; every one without it")
    prompt: Amount = setting(help="a million tokens of prompt")
    cached_prompt: Amount | None = setting(
        default=None, help="a million of those that were cached; as `prompt` without"
    )
    completion: Amount = setting(default=Price(0), help="a million tokens of completion")
    per_request: Amount = setting(default=Price(0), help="each request")
    starts: Day | None = setting(default=None, key="from", help="the first day on which they hold")
    ends: Day | None = setting(default=None, key="until", help="the first day on which they hold no longer")

    def check(self) -> Iterator[str | At]:
        """The dates must leave a day between them."""
        if self.starts is not None and self.ends is not None and self.ends <= self.starts:
            yield At("the prices end before they begin", "until")

    def overlaps(self, other: Entry) -> bool:
        """Whether both hold for the same calls on some day."""
        return (
            (self.model, self.service_class) == (other.model, other.service_class)
            and (self.starts or date.min) < (other.ends or date.max)
            and (other.starts or date.min) < (self.ends or date.max)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PricesFile:
    """All prices, in one currency."""

    currency: Annotated[str, Matching("[A-Z]{3}", "a code of three letters such as EUR")] = setting(help="the currency")
    zone: Zone = setting(default=ZoneInfo("UTC"), help="the time zone in which the days begin")
    version: str | None = setting(default=None, help="what records call these prices; a mark of the file without it")
    prices: tuple[Entry, ...] = setting(help="the models' prices")

    def check(self) -> Iterator[str | At]:
        """At any time there is one price for the same thing."""
        seen: dict[tuple[str, str | None], list[Entry]] = defaultdict(list)
        for number, entry in enumerate(self.prices):
            group = seen[entry.model, entry.service_class]
            if any(entry.overlaps(other) for other in group):
                yield At("another entry has prices for the same model, class and days", "prices", number)
            group.append(entry)


class Prices:
    """The prices as calls look them up."""

    def __init__(self, file: PricesFile, version: str) -> None:
        self.currency = file.currency
        self.version = file.version or version
        spans: dict[tuple[str, str], list[tuple[int, int, Tariff]]] = defaultdict(list)
        for entry in file.prices:
            cached = entry.prompt if entry.cached_prompt is None else entry.cached_prompt
            rates = int(entry.prompt), int(cached), int(entry.completion), int(entry.per_request)
            span = _begin(entry.starts, file.zone, -_EVER), _begin(entry.ends, file.zone, _EVER)
            tariff = Tariff(self.currency, self.version, rates)
            spans[entry.model, entry.service_class or ""].append((*span, tariff))
        self._spans = {name: sorted(group, key=lambda span: span[0]) for name, group in spans.items()}
        self._edges = sorted({edge for group in spans.values() for start, end, _ in group for edge in (start, end)})
        self._starts = {name: [start for start, _, _ in group] for name, group in self._spans.items()}

    def tariff(self, model: str, service_class: str, now_ns: int) -> Tariff | None:
        """What holds for a model at a time: the prices of the class, else those of every class, else None."""
        return self._at((model, service_class), now_ns) or self._at((model, ""), now_ns)

    def _at(self, name: tuple[str, str], now_ns: int) -> Tariff | None:
        starts = self._starts.get(name)
        if starts is None:
            return None
        place = bisect_right(starts, now_ns) - 1
        if place < 0:
            return None
        _, end, tariff = self._spans[name][place]
        return tariff if now_ns < end else None

    def steady_until(self, now_ns: int) -> int:
        """The next time at which any price begins or ends."""
        place = bisect_right(self._edges, now_ns)
        return self._edges[place] if place < len(self._edges) else _EVER

    def models(self) -> frozenset[str]:
        """The models that have a price at some time."""
        return frozenset(model for model, _ in self._spans)


def load(path: Path) -> Prices:
    """The prices in a file; raises ConfigError with all that is wrong in it."""
    return of_text(text_of(path), str(path))


def of_text(text: str, name: str) -> Prices:
    """The prices in a text, as if it stood in the file `name`."""
    file = decode_source(PricesFile, parse(text, name))
    return Prices(file, hashlib.sha256(text.encode()).hexdigest()[:12])


def _begin(day: date | None, zone: ZoneInfo, without: int) -> int:
    """When a day begins somewhere, in nanoseconds since 1970."""
    return without if day is None else int(datetime(day.year, day.month, day.day, tzinfo=zone).timestamp()) * _NANO
