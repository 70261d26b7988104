"""TLS contexts whose files are read again when they change."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path

from tailrace.proxy.client_tls import ClientTls
from tailrace.proxy.listener import ServerTls
from tailrace.proxy.pem import no_password

log = logging.getLogger("tailrace")
Stamp = tuple[tuple[int, int, int], ...]


def _stamp(*paths: Path | None) -> Stamp:
    stamps = []
    for path in paths:
        if path is not None:
            found = path.stat()
            stamps.append((found.st_mtime_ns, found.st_ino, found.st_size))
    return tuple(stamps)


class ClientContext:
    """The context for connections to workers; `current` reads changed files anew, and keeps the last that worked."""

    def __init__(self, settings: ClientTls | None) -> None:
        self._settings = settings or ClientTls()
        self._stamp = self._stamps()
        self._complaint = ""
        self._context = self._built()

    def current(self) -> ssl.SSLContext:
        """The context to use now."""
        try:
            stamp = self._stamps()
            if stamp != self._stamp:
                self._stamp = stamp
                self._context = self._built()
        except (OSError, ssl.SSLError) as error:
            if str(error) != self._complaint:
                self._complaint = str(error)
                log.error("the changed certificates for workers cannot be used, the old ones stay: %s", error)
        return self._context

    def _stamps(self) -> Stamp:
        return _stamp(self._settings.ca, self._settings.cert, self._settings.key)

    def _built(self) -> ssl.SSLContext:
        try:
            return self._read()
        except OSError as error:
            raise _told(error, self._settings) from error

    def _read(self) -> ssl.SSLContext:
        settings = self._settings
        context = ssl.create_default_context(cafile=settings.ca)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        if settings.cert is not None:
            context.load_cert_chain(settings.cert, settings.key, no_password)
        return context


def _told(error: OSError, settings: ServerTls | ClientTls) -> OSError:
    """Why the files cannot be used in the words of `tailrace check`: OpenSSL has a number for it."""
    fault = next(iter(settings.look()), None)
    return error if fault is None else OSError(fault.text)


class ServerContext:
    """The context of a listener; `context` is for the next connection, those that run keep what they have."""

    def __init__(self, settings: ServerTls) -> None:
        self._settings = settings
        self._stamp = self._stamps()
        self.context = self._built()

    def refresh(self) -> bool:
        """Read changed files again; where they are bad, raises OSError and keeps the old ones.

        The same bad files are complained of once.
        """
        try:
            stamp = self._stamps()
        except OSError:
            # Whatever stands there next, the old files too, is read again.
            self._stamp = ()
            raise
        if stamp == self._stamp:
            return False
        self._stamp = stamp
        self.context = self._built()
        return True

    def _stamps(self) -> Stamp:
        return _stamp(self._settings.cert, self._settings.key, self._settings.client_ca)

    def _built(self) -> ssl.SSLContext:
        try:
            return self._read()
        except OSError as error:
            raise _told(error, self._settings) from error

    def _read(self) -> ssl.SSLContext:
        # A new context each time: what was loaded into one, an authority above all, cannot be taken out again.
        settings = self._settings
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        context.load_cert_chain(settings.cert, settings.key, no_password)
        if settings.client_ca is not None:
            context.load_verify_locations(cafile=settings.client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
        return context
