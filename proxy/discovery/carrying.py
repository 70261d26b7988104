"""Whether a pool carries the peak that is declared for it: with all of its workers, and with one of them gone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from tailrace.proxy.config import At
from tailrace.proxy.discovery.listing import ListingError, read_in_time
from tailrace.proxy.discovery.settings import WorkerEntry

CONCURRENCY: Final = 256
"""Calls at once that a worker carries where a pool does not say it."""


def carrying_faults(workers: Sequence[WorkerEntry], peak: int | None, concurrency: int) -> Iterable[At]:
    """A peak above what all workers together carry, where a configuration says which they are."""
    count = counted(workers, files=False)
    if peak is not None and count is not None and peak > count * concurrency:
        yield At(
            f"{_workers(count)} of {concurrency} calls each (`concurrency`) cannot carry {peak} at once: "
            f"{_needed(peak, concurrency)} can, one of them lost",
            "peak",
        )


def shortage(count: int, peak: int | None, concurrency: int) -> str:
    """What a pool of so many workers would lack if one of them were lost, empty where that is nothing."""
    if peak is None or peak <= (count - 1) * concurrency:
        return ""
    lost = f"without one of its {count} workers" if count > 1 else "without its only worker" if count else "as it is"
    return (
        f"{lost} it carries {max(count - 1, 0) * concurrency} calls at once, counted at {concurrency} a worker "
        f"(`concurrency`), and {peak} are expected (`peak`): {_needed(peak, concurrency)} workers would do"
    )


def counted(workers: Iterable[WorkerEntry], *, files: bool = True) -> int | None:
    """How many workers a list stands for now, None where that will only be found out."""
    count = 0
    for entry in workers:
        if entry.url is not None:
            count += 1
        elif entry.file is not None and files:
            try:
                count += len(read_in_time(entry.file))
            except ListingError:
                return None
        else:
            return None
    return count


def _needed(peak: int, concurrency: int) -> int:
    return -(-peak // concurrency) + 1


def _workers(count: int) -> str:
    return "1 worker" if count == 1 else f"{count} workers"
