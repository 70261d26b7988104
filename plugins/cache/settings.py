"""What `cache` can be told."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Annotated

from tailrace.proxy.config import Above, At, AtLeast, AtMost, Matching, Seconds, Secret, Size, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """A store that several hosts share."""

    url: Secret = setting(help="redis://[:PASSWORD@]HOST:PORT[/DB], rediss://…, or unix:///PATH")
    prefix: Annotated[str, Matching(r"[A-Za-z0-9_.-]+", "letters, digits and _.-")] = setting(
        default="tailrace-cache", help="the beginning of its keys; one for each set of gateways"
    )
    wait_ms: Annotated[float, AtLeast(0.5), AtMost(1000)] = setting(
        default=5.0, help="how long a call waits for it; then it is as if nothing were kept", why="a miss costs as much"
    )
    waiting: Annotated[int, AtLeast(1)] = setting(
        default=1000, help="answers that wait to be written; more are dropped, and counted"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """What is kept, for whom and for how long."""

    ttl: Annotated[Seconds, Above(0)] = setting(default=3600.0, help="how long an answer is given again")
    memory: Size = setting(default=256 << 20, help="bytes of answers that each process keeps")
    largest: Size = setting(
        default=256 << 10,
        help="answers above are not kept, and nobody joins one under way that has become longer",
        why="also how far those who share an answer under way may lag behind each other",
    )
    scope: Annotated[str, Matching(r"[^/*]+", "a name without / and *")] | None = setting(
        default=None,
        help="a name under which all tenants share answers",
        why="without it each tenant has its own: what one was told is nothing for another",
    )
    always: bool = setting(
        default=False,
        help="also answers in which chance has a part, as with a temperature above 0, without a client's asking",
    )
    pace: Annotated[float, Above(0)] | None = setting(
        default=None, help="tokens a second of a stream that is given again; all at once without it"
    )
    stale: Seconds = setting(
        default=0.0, help="so much longer an answer may be given where no worker can (`cached: true` in `breaker`)"
    )
    valkey: StoreSettings | None = setting(
        default=None, help="Valkey or Redis in place of the memory of each process, shared by processes and hosts"
    )

    def look(self) -> Iterable[At]:
        """A client that is not there."""
        if self.valkey is not None and find_spec("redis") is None:
            yield At("Valkey needs the extra: pip install 'tailrace[valkey]'", "valkey")
