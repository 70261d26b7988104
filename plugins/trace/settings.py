"""What the YAML says of `trace`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Annotated, Literal
from urllib.parse import urlsplit

from tailrace.proxy.config import Above, At, AtLeast, AtMost, Seconds, Secret, setting

PATH = "/v1/traces"
_VARIABLES = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_NEEDED = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Which calls are kept, and where their spans go."""

    endpoint: str | None = setting(
        default=None,
        help="a collector that takes OTLP over HTTP, such as http://127.0.0.1:4318; without it, what "
        "`$OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` or `$OTEL_EXPORTER_OTLP_ENDPOINT` says, else spans go nowhere",
    )
    headers: dict[str, Secret] = setting(default_factory=dict, help="sent to the collector with every batch")
    service: str = setting(default="tailrace", help="`service.name` of the spans")
    ratio: Annotated[float, AtLeast(0), AtMost(1)] = setting(
        default=0.01,
        help="share of the calls without a decision of their client's that is kept, and recorded by workers, whatever "
        "becomes of them; their plugins are timed",
    )
    parents: Literal["follow", "ignore"] = setting(
        default="follow", help="whether the sampled flag of a client's `traceparent` is that decision"
    )
    slowest: Annotated[float, AtLeast(0), AtMost(0.5)] = setting(
        default=0.01, help="share of calls that are kept for being the slowest of their route"
    )
    rate: Annotated[int, AtLeast(1)] = setting(
        default=50,
        help="most calls a second that a process keeps, four in five of them at most for `ratio` or their clients "
        "alone; more are dropped, and counted",
        why="to make their spans takes half a millisecond each, and an outage has thousands",
    )
    queue: Annotated[int, AtLeast(1)] = setting(
        default=2048,
        help="calls that wait for delivery, in each process and on the host; more are dropped, and counted",
    )
    timeout: Annotated[Seconds, Above(0)] = setting(default=5.0, help="how long the collector may take for a batch")

    @property
    def url(self) -> str | None:
        """Where spans go; None for nowhere."""
        if self.endpoint is not None:
            path = urlsplit(self.endpoint).path
            return self.endpoint if path.strip("/") else self.endpoint.rstrip("/") + PATH
        traces, base = (os.environ.get(name) for name in _VARIABLES)
        return traces or (base.rstrip("/") + PATH if base else None)

    def check(self) -> Iterator[At]:
        """An endpoint that is none."""
        if self.endpoint is None:
            return
        try:
            parts = urlsplit(self.endpoint)
            right = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            right = False
        if not right:
            yield At(f"'{self.endpoint}' is no URL of a collector, such as http://127.0.0.1:4318", "endpoint")

    def look(self) -> Iterator[At]:
        """What speaks to collectors, and is installed apart."""
        if self.url is not None and not deliverable():
            yield At("spans can be delivered only with OpenTelemetry's SDK: pip install 'tailrace[otel]'", "endpoint")


def deliverable() -> bool:
    """Whether the SDK and its exporter are installed."""
    try:
        return all(find_spec(name) is not None for name in _NEEDED)
    except ModuleNotFoundError:
        return False
