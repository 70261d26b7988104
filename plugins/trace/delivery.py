"""The thread that makes spans of records and gives them to a collector, so that neither holds anybody up.

OpenTelemetry's SDK is loaded here, with the first record. What a collector does not take in time is lost and counted:
traces are not worth memory without bound, nor a late answer.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from tailrace.proxy.config.secret import without_userinfo
from tailrace.proxy.logs import Seldom
from tailrace.proxy.trace.told import Record

if TYPE_CHECKING:
    from tailrace.plugins.trace.spans import Spans

log = logging.getLogger("tailrace")
BATCH: Final = 64
"""Calls whose spans go together."""
LAST_CHANCE: Final = 3.0
_TELL_EVERY: Final = 60.0
_IDLE: Final = 0.2


class Delivery(threading.Thread):
    """`put` and the numbers are for the event loop, `finish` for a thread that may wait."""

    def __init__(self, url: str, headers: Mapping[str, str], service: str, limit: int, timeout: float) -> None:
        super().__init__(name="trace delivery", daemon=True)
        self.delivered = self.lost = 0
        self._url = url
        self._headers = dict(headers)
        self._service = service
        self._limit = limit
        self._timeout = timeout
        self._records: deque[tuple[Any, int, int]] = deque()
        self._wake = threading.Event()
        self._ending = False
        self._exporter: Any = None
        self._seldom = Seldom(_TELL_EVERY)

    def put(self, raw: Any, offset_ns: int, seat: int) -> None:
        """Take a record, or drop it where too many wait."""
        if len(self._records) >= self._limit:
            self.lost += 1
        else:
            self._records.append((raw, offset_ns, seat))
            self._wake.set()

    @property
    def waiting(self) -> int:
        """Records that are still here."""
        return len(self._records)

    def finish(self) -> None:
        """Deliver what is left if that goes quickly, and end."""
        self._ending = True
        self._wake.set()
        self.join(LAST_CHANCE)
        if self.is_alive() and self._exporter is not None:
            # Ends the pauses between its tries, too.
            self._exporter.shutdown()
            self.join(LAST_CHANCE)
        self.lost += len(self._records)
        self._records.clear()

    def run(self) -> None:
        """Deliver batches until the end."""
        spans: Spans | None = None
        while True:
            self._wake.wait()
            self._wake.clear()
            while self._records:
                try:
                    if spans is None:
                        spans = self._open()
                    self._deliver(spans)
                except Exception as error:
                    log.exception("the delivery of spans failed")
                    if spans is None:
                        self.lost += len(self._records)
                        self._records.clear()
                        del error
            if self._ending and not self._records:
                return

    def _open(self) -> Spans:
        # Half a second's worth of modules, which only who delivers needs.
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from tailrace.plugins.trace.spans import Spans

        # It tells of each failure at length, what its server said included.
        logging.getLogger("opentelemetry.exporter").setLevel(logging.CRITICAL)
        self._exporter = OTLPSpanExporter(endpoint=self._url, headers=self._headers, timeout=self._timeout)
        return Spans(self._service)

    def _deliver(self, spans: Spans) -> None:
        count = min(BATCH, len(self._records))
        batch = [self._records.popleft() for _ in range(count)]
        made = [span for raw, offset_ns, seat in batch for span in spans.of(Record.of(raw), offset_ns, seat)]
        try:
            well = self._exporter.export(made).name == "SUCCESS"
        except Exception as error:
            log.debug("the exporter raised %s", type(error).__name__)
            well = False
        if well:
            self.delivered += count
            return
        self.lost += count
        if self._seldom.due():
            log.warning(
                "spans cannot be delivered to %s: %d calls are lost so far%s",
                without_userinfo(self._url),
                self.lost,
                self._seldom.more(),
            )
