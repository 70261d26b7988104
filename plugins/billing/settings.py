"""What the `billing` plugin's entry in the YAML says."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal

from tailrace.proxy.config import At, AtLeast, AtMost, ConfigError, Seconds, Secret, setting
from tailrace.proxy.ledger.ring import SLOTS
from tailrace.proxy.ledger.shipping import KEEP_SECONDS
from tailrace.proxy.prices import load


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """What calls cost, and how surely that is known afterwards."""

    prices: Path = setting(help="the YAML file of prices, followed when it changes")
    unpriced: Literal["refuse", "free"] = setting(
        default="refuse",
        help="what becomes of a call whose model has no price",
        why="a typing error in a price list must not give a model away",
    )
    durability: Literal["batched", "strict"] = setting(
        default="batched",
        help="`strict` holds the end of each answer until its record is on disk",
        why="a record outlives its process at once, and a power cut some 20 ms later",
    )
    strict_wait: Annotated[Seconds, AtLeast(0.05), AtMost(60)] = setting(
        default=2.0, help="how long `strict` holds an answer at most; it goes out then, and is counted"
    )
    full: Literal["refuse", "serve"] = setting(
        default="refuse",
        help="what becomes of a call that there is no room to record, as after a while with a full disk",
        why="what is not recorded is not billed",
    )
    kept_share: Annotated[float, AtLeast(0), AtMost(1)] = setting(
        default=0.0,
        help="the share of its price that an answer costs which was made for another call (`cache`); 0 is free",
        why="it was paid for when it was made",
    )
    records_in_memory: Annotated[int, AtLeast(1), AtMost(1 << 18)] = setting(
        default=SLOTS,
        help="records that a process has room for which are open, as during a stream, or not on disk yet",
        why="2 KiB of memory each; what has no room is treated as `full` says",
    )
    sink: Secret | None = setting(
        default=None, help="postgresql://…, where records go; without it, SQLite in the state folder"
    )
    keep: Annotated[Seconds, AtLeast(3600)] = setting(
        default=KEEP_SECONDS, help="how long the log keeps what the sink has", why="a month to compare the two"
    )

    def look(self) -> Iterable[At]:
        """A file of prices that cannot be used, a driver that is not there."""
        if self.sink is not None and find_spec("psycopg") is None:
            yield At("PostgreSQL needs the extra: pip install 'tailrace[postgres]'", "sink")
        try:
            load(self.prices)
        except ConfigError as error:
            yield At(str(error.flaws[0]), "prices")
