"""What discovery says of one worker, and all that it has found, in forms that travel between processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

MOST: Final = 4096
"""Workers that one source may name."""


LIGHTEST: Final = 0.001
HEAVIEST: Final = 1000.0
"""What a worker's weight may be: beyond, one of two would as well not be there, and sums would not be finite."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a worker is. What is not said of it (None) is what its source's entry in the configuration says.

    `name` is the host name that its certificate bears and that it is called by, where the URL has an address instead.
    """

    url: str
    weight: float | None = None
    region: str | None = None
    name: str = ""

    def plain(self) -> list[Any]:
        """The same as a list."""
        return [self.url, self.weight, self.region, self.name]


@dataclass(frozen=True, slots=True)
class Found:
    """What every source has found, by its key; `same` leads from a URL to the one that is the same endpoint."""

    members: Mapping[str, tuple[Endpoint, ...]] = field(default_factory=dict)
    same: Mapping[str, str] = field(default_factory=dict)

    def plain(self) -> dict[str, Any]:
        """The same in dicts, lists and scalars."""
        members = {key: [endpoint.plain() for endpoint in found] for key, found in self.members.items()}
        return {"members": members, "same": dict(self.same)}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Found:
        """What `plain` told."""
        members = {key: tuple(Endpoint(*each) for each in found) for key, found in plain["members"].items()}
        return cls(members, plain["same"])


NOTHING: Final = Found()
