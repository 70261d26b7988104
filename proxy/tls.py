"""TLS contexts whose files are read again when they change."""

from __future__ import annotations

import ssl
from pathlib import Path

from tailrace.proxy.settings import ClientTls, ServerTls


def _stamp(*paths: Path | None) -> tuple[tuple[int, int], ...]:
    stamps = []
    for path in paths:
        if path is not None:
            found = path.stat()
            stamps.append((found.st_mtime_ns, found.st_ino))
    return tuple(stamps)


class ClientContext:
    """The context for connections to workers; `current` reads changed files anew, and keeps the last that worked."""

    def __init__(self, settings: ClientTls | None) -> None:
        self._settings = settings or ClientTls()
        self._stamp = self._stamps()
        self._context = self._read()

    def current(self) -> ssl.SSLContext:
        """The context to use now."""
        try:
            stamp = self._stamps()
            if stamp != self._stamp:
                self._context = self._read()
                self._stamp = stamp
        except (OSError, ssl.SSLError):
            return self._context
        return self._context

    def _stamps(self) -> tuple[tuple[int, int], ...]:
        return _stamp(self._settings.ca, self._settings.cert, self._settings.key)

    def _read(self) -> ssl.SSLContext:
        settings = self._settings
        context = ssl.create_default_context(cafile=settings.ca)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        if settings.cert is not None:
            context.load_cert_chain(settings.cert, settings.key)
        return context


class ServerContext:
    """The context of a listener. `refresh` loads changed files into it; running connections keep what they have."""

    def __init__(self, settings: ServerTls) -> None:
        self._settings = settings
        self._stamp = self._stamps()
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.context.set_alpn_protocols(["http/1.1"])
        self._load()

    def refresh(self) -> bool:
        """Read changed files again; raises OSError or ssl.SSLError and keeps the old ones if they are bad."""
        stamp = self._stamps()
        if stamp == self._stamp:
            return False
        # A trial context first: loading half a pair into the live one would break new connections.
        ServerContext(self._settings)
        self._load()
        self._stamp = stamp
        return True

    def _stamps(self) -> tuple[tuple[int, int], ...]:
        return _stamp(self._settings.cert, self._settings.key, self._settings.client_ca)

    def _load(self) -> None:
        self.context.load_cert_chain(self._settings.cert, self._settings.key)
        if self._settings.client_ca is not None:
            self.context.load_verify_locations(cafile=self._settings.client_ca)
            self.context.verify_mode = ssl.CERT_REQUIRED
