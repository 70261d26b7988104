"""The writer's side of a segment: gives each series its slots, and bounds how many there are.

A series that finds no room is counted under label values "other", so that totals stay right; a gauge is left out
instead, because a level that many write is no level. Series whose subject is gone (a worker that was removed) are
retired: when room is short they are dropped, their counts are added to "other", and their slots are used again.
"""

from __future__ import annotations

from tailrace.proxy.metrics import catalogue
from tailrace.proxy.metrics.family import OTHER, Family, Kind
from tailrace.proxy.metrics.segment import (
    SLOTS,
    TABLE_BYTES,
    Segment,
    Values,
    family_record,
    framed_size,
    series_record,
)

MAX_SERIES = 8192
MAX_FAMILIES = 256
_MAX_RECORD = 2048
# Kept free for the series named "other", which come when everything else is full.
_RESERVED_SLOTS = 8192
_RESERVED_TABLE = 256 << 10
_WIDEST = 64

Name = tuple[str, Values]


class Register:
    """The series of one process. Nothing here is for the path of a request: keep the slot that `series` returns."""

    def __init__(self, segment: Segment) -> None:
        if segment.table_used:
            raise ValueError("the metrics segment already has a writer")
        self.segment = segment
        self._families: dict[str, tuple[int, Family]] = {}
        self._series: dict[Name, int] = {}
        self._counts: dict[str, int] = {}
        self._retired: dict[Name, None] = {}
        self._free: dict[int, list[int]] = {}
        # The first slots belong to no series: what has no room at all is written there.
        self._next = _WIDEST
        self._folded = self.series(catalogue.SERIES_FOLDED, ())

    def series(self, family: Family, values: Values) -> int:
        """The first slot of a series, which begins at zero; the same for the same labels. Never fails."""
        name = (family.name, values)
        first = self._series.get(name)
        if first is not None:
            self._retired.pop(name, None)
            return first
        if self._has_room(family):
            first = self._add(family, values, reserve=False)
            if first is not None:
                return first
        self.segment.slots[self._folded] += 1
        if family.kind is Kind.GAUGE:
            return 0
        for fold in (family.folded(values), (OTHER,) * len(values)):
            first = self._series.get((family.name, fold))
            if first is None:
                first = self._add(family, fold, reserve=True)
            if first is not None:
                return first
        return 0

    def retire(self, family: Family, values: Values) -> None:
        """Say that a series has lost its subject; its gauge disappears at once, its counts when room is short."""
        name = (family.name, values)
        first = self._series.get(name)
        if first is not None and name not in self._retired:
            self._retired[name] = None
            if family.kind is Kind.GAUGE:
                self.segment.slots[first] = float("nan")

    def has(self, family: Family, values: Values) -> bool:
        """Whether a series has a place of its own."""
        return (family.name, values) in self._series

    def names(self, family: Family) -> list[Values]:
        """The label values of a family's series."""
        return [values for name, values in self._series if name == family.name]

    def _has_room(self, family: Family) -> bool:
        def roomy() -> bool:
            return self._counts.get(family.name, 0) < family.limit and len(self._series) < MAX_SERIES

        if not roomy() and self._retired:
            self._drop_retired()
        return roomy()

    def _add(self, family: Family, values: Values, *, reserve: bool) -> int | None:
        width, segment = family.width, self.segment
        number = self._number(family)
        if number is None or width > _WIDEST:
            return None
        free = self._free.get(width)
        first = free[-1] if free else self._next
        record = series_record(number, first, values)
        kept_slots, kept_table = (0, 0) if reserve else (_RESERVED_SLOTS, _RESERVED_TABLE)
        if len(record) > _MAX_RECORD or segment.table_used + framed_size(record) > TABLE_BYTES - kept_table:
            return None
        if free:
            free.pop()
        elif first + width > SLOTS - kept_slots:
            return None
        else:
            self._next += width
        segment.append(record)
        self._series[family.name, values] = first
        self._counts[family.name] = self._counts.get(family.name, 0) + 1
        return first

    def _number(self, family: Family) -> int | None:
        known = self._families.get(family.name)
        if known is not None:
            return known[0] if known[1].width == family.width and known[1].labels == family.labels else None
        record = family_record(family)
        if (
            len(self._families) >= MAX_FAMILIES
            or len(record) > _MAX_RECORD
            or self.segment.table_used + framed_size(record) > TABLE_BYTES
        ):
            return None
        number = len(self._families)
        self.segment.append(record)
        self._families[family.name] = (number, family)
        return number

    def _drop_retired(self) -> None:
        """Rewrite the table without the retired series; readers wait meanwhile."""
        slots = self.segment.slots
        self.segment.begin_rewrite()
        dropped: list[tuple[Family, Values, list[float]]] = []
        for name in self._retired:
            _, family = self._families[name[0]]
            first = self._series.pop(name)
            self._counts[name[0]] -= 1
            if family.kind is not Kind.GAUGE:
                dropped.append((family, family.folded(name[1]), list(slots[first : first + family.width])))
            for slot in range(first, first + family.width):
                slots[slot] = 0.0
            self._free.setdefault(family.width, []).append(first)
        self._retired.clear()
        for _, family in self._families.values():
            self.segment.append(family_record(family))
        for (name_of, values), first in self._series.items():
            self.segment.append(series_record(self._families[name_of][0], first, values))
        for family, fold, counts in dropped:
            kept = self._series.get((family.name, fold))
            if kept is None:
                kept = self._add(family, fold, reserve=True)
            if kept is not None:
                for offset, count in enumerate(counts):
                    slots[kept + offset] += count
        self.segment.end_rewrite()
