"""What a role is to the processes that run it: how it is configured, opened, reloaded, drained and closed.

The supervisor finds a role by its name (`role:` in the YAML, entry-point group `tailrace.roles`), decodes the file into
the role's `Settings`, opens the listening sockets and starts processes; each of them opens the role once.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from tailrace.proxy.discovery.endpoint import NOTHING

if TYPE_CHECKING:
    from tailrace.proxy.discovery.announcement import Register
    from tailrace.proxy.discovery.endpoint import Found
    from tailrace.proxy.door import Door
    from tailrace.proxy.fleet import Worker
    from tailrace.proxy.ground import Ask
    from tailrace.proxy.service import Service
    from tailrace.proxy.tenure import Tenure


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """Which process of how many this is. A process that replaces another one takes its seat."""

    index: int = 0
    count: int = 1
    generation: int = 1
    """The generation of the configuration it opens with; each one it commits is one more."""
    metrics: int | None = None
    """File descriptor of the shared-memory segment for counters; None outside a supervisor."""
    board: int | None = None
    """The same of the board on which several processes share new connections; None for one alone."""
    ask: Ask | None = None
    """Asks a plugin's part that runs once on this host; None outside a supervisor."""
    births: int = -1
    """File descriptor of the table of response ids that all processes share; -1 outside a supervisor."""
    tenure: Tenure | None = None
    """What no reload changes; None where it begins with the settings."""
    host_unready: Sequence[str] = ()
    """Why the whole host should get no new traffic, as far as its supervisor knows."""
    found: Found = NOTHING
    """The workers that discovery has found on this host so far."""
    register: Register | None = None
    """Tells the host's discovery of a sidecar that comes or goes; None outside a supervisor."""


class Staged(Protocol):
    """A configuration that is built and checked but not in place yet; exactly one of the two is called, once."""

    def commit(self) -> None:
        """Put it in place: new calls follow it, running ones keep what they began with. Cannot fail."""

    async def discard(self) -> None:
        """Let it go; the present configuration stays."""


class Process(Protocol):
    """One running process of a role."""

    service: Service
    doors: list[Door]

    async def prepare(self, settings: Any) -> Staged:
        """Build all that a changed configuration asks for; raises where it cannot be, and changes nothing then."""

    def workers(self) -> Iterable[Worker]:
        """The workers of the present configuration: what `tailrace workers` lists and drains."""

    def discovered(self, found: Found, then: Callable[[], None] = ...) -> None:
        """Take up what discovery has found now; `then` is called whenever some of it is taken up."""

    def unready(self) -> list[str]:
        """Why this process should get no new traffic; empty while it should."""

    async def drain(self, hurry: asyncio.Event) -> None:
        """Bring the service to its end: unready at once, then `pre_stop`, then `drain`, then honest endings.

        `hurry` may be set at any time and skips every wait. Where no door accepts any more, nobody has to learn of the
        end, and `pre_stop` is skipped. Returns when no call is left.
        """

    async def close(self) -> None:
        """Close whatever is open, at once."""


class Role(Protocol):
    """A role as its entry point names it: a class without constructor arguments."""

    Settings: type[Any]
    """Dataclass of its YAML, derived from `tailrace.proxy.settings:Relay`."""

    def check(self, settings: Any) -> None:
        """Raise ChainError for what is wrong with decoded settings; opens and starts nothing."""

    async def open(self, settings: Any, sockets: Sequence[socket.socket], seat: Seat) -> Process:
        """Start to serve on listening sockets, one for each listener of the seat's tenure, else of the settings."""
