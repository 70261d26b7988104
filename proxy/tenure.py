"""What holds for a supervisor's whole life, whatever its file says later, and travels to every process it starts."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tailrace.proxy.ground import Places
from tailrace.proxy.listener import Listener, ServerTls
from tailrace.proxy.settings import Relay, state_folder


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenure:
    """One supervisor's: `listen` is what its sockets were opened for, `places` is where its plugins' parts are."""

    listen: tuple[Listener, ...]
    places: Places

    @classmethod
    def of(cls, settings: Relay) -> Tenure:
        """The one that begins with these settings."""
        return cls(listen=settings.listen, places=Places.of(state_folder(settings)))

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Tenure:
        """The one that `plain` told."""
        places = Places(Path(plain["state"]), Path(plain["shared"]))
        return cls(listen=tuple(_listener(listener) for listener in plain["listen"]), places=places)

    def plain(self) -> dict[str, Any]:
        """The same in dicts, lists and text."""
        listen = [_told(dataclasses.asdict(listener)) for listener in self.listen]
        return {"listen": listen, "state": str(self.places.state), "shared": str(self.places.shared)}


def _told(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _told(part) for key, part in value.items()}
    return str(value) if isinstance(value, Path) else value


def _listener(plain: Mapping[str, Any]) -> Listener:
    files = plain["tls"]
    tls = None if files is None else ServerTls(**{key: file and Path(file) for key, file in files.items()})
    return Listener(**{**plain, "tls": tls, "trusted_proxies": tuple(plain["trusted_proxies"])})
