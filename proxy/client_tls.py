"""What a configuration says of TLS towards workers and gateways: whom to trust, and what to show them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tailrace.proxy.config import At, setting
from tailrace.proxy.pem import authority_faults, pair_faults


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientTls:
    """How workers are verified, and what is shown to them (mTLS)."""

    ca: Path | None = setting(
        default=None, help="PEM bundle that signs the workers' certificates; system roots otherwise"
    )
    cert: Path | None = setting(default=None, help="PEM client certificate")
    key: Path | None = setting(default=None, help="PEM key of the client certificate")

    def check(self) -> Iterable[At]:
        """A certificate needs its key."""
        if (self.cert is None) != (self.key is None):
            yield At("cert and key go together: give both or neither", "cert" if self.key is None else "key")

    def look(self) -> Iterable[At]:
        """Files that cannot be used."""
        yield from authority_faults(self.ca, "ca")
        if self.cert is not None and self.key is not None:
            yield from pair_faults(self.cert, self.key)
