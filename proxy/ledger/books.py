"""The ledger's part that runs once on a host: log, keeper and shipper, opened and closed together."""

from __future__ import annotations

from pathlib import Path

from tailrace.proxy.ground import Places
from tailrace.proxy.ledger.keeper import PERIOD as ROUND
from tailrace.proxy.ledger.keeper import PROMPT, Keeper
from tailrace.proxy.ledger.lately import Lately
from tailrace.proxy.ledger.log import SEGMENT_BYTES, SEGMENT_SECONDS, Log
from tailrace.proxy.ledger.segments import FOLDER
from tailrace.proxy.ledger.shipping import KEEP_SECONDS, PERIOD, Shipper
from tailrace.proxy.ledger.sinks import sink_of

STALLED_SECONDS = 5.0
BEHIND_SECONDS = 30.0


def rings_in(places: Places) -> Path:
    """Where the processes of a host have their rings."""
    return places.shared / FOLDER


class Books:
    """Everything in it may be read from any thread."""

    def __init__(
        self,
        places: Places,
        url: str | None,
        *,
        keep_seconds: float = KEEP_SECONDS,
        segment_bytes: int = SEGMENT_BYTES,
        segment_seconds: float = SEGMENT_SECONDS,
        prompt: bool = False,
    ) -> None:
        """Take up what is there and begin; raises OSError or Down where that is not possible."""
        sink = sink_of(url, places.state)
        rings = rings_in(places)
        rings.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.log = Log(places.state / FOLDER, segment_bytes=segment_bytes, segment_seconds=segment_seconds)
        lately = Lately()
        self.keeper = Keeper(rings, self.log, lately=lately)
        self.shipper = Shipper(self.log, sink, lately=lately, keep_seconds=keep_seconds, period=PERIOD)
        self.hasten(prompt=prompt)
        self.keeper.start()
        self.shipper.start()

    def hasten(self, *, prompt: bool) -> None:
        """Say whether anybody waits for records to become durable."""
        self.keeper.period = PROMPT if prompt else ROUND

    @property
    def standstill(self) -> list[str]:
        """Why nothing becomes durable now: it piles up in memory, where there is not much room."""
        stalled = self.keeper.stalled_seconds
        if stalled > STALLED_SECONDS:
            return [f"the ledger's disk has taken nothing for {stalled:.0f} s"]
        return [self.keeper.trouble] if self.keeper.trouble else []

    @property
    def troubles(self) -> list[str]:
        """What is wrong now; what cannot be shipped piles up in the log."""
        behind = self.shipper.behind_seconds
        lagging = f"the ledger's sink is {behind:.0f} s behind" if behind > BEHIND_SECONDS else ""
        found = (*self.standstill, self.shipper.trouble or lagging, self.log.damaged)
        return [each for each in found if each]

    def close(self) -> None:
        """Keep and ship what can be, and end."""
        self.keeper.close()
        self.shipper.close()
