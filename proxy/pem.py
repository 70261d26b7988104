"""What keeps certificates and keys from being used, told before anything is opened with them."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

from tailrace.proxy.config import At


class Encrypted(ssl.SSLError):
    """A key that only its owner can read."""


def pair_faults(cert: Path, key: Path) -> Iterator[At]:
    """Faults of a certificate chain and its private key, which stand under `cert` and `key`."""
    unreadable = False
    for name, path in (("cert", cert), ("key", key)):
        why = unreadable_because(path)
        if why is not None:
            unreadable = True
            yield At(f"{path} cannot be read: {why}", name)
    if unreadable:
        return
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(cafile=cert)
    except ssl.SSLError:
        yield At(f"{cert} holds no PEM certificate", "cert")
        return
    try:
        context.load_cert_chain(cert, key, no_password)
    except Encrypted as error:
        yield At(f"{key}: {error.args[0]}", "key")
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            yield At(f"{key} does not belong to the certificate in {cert}", "key")
        else:
            yield At(f"{key} holds no PEM private key", "key")


def authority_faults(path: Path | None, name: str) -> Iterator[At]:
    """Faults of a bundle of authorities, which stands under `name`."""
    if path is None:
        return
    why = unreadable_because(path)
    if why is not None:
        yield At(f"{path} cannot be read: {why}", name)
        return
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cafile=path)
    except ssl.SSLError:
        yield At(f"{path} holds no PEM certificate", name)


def no_password() -> str:
    """Asked for an encrypted key: without it OpenSSL would ask on the terminal, for ever."""
    raise Encrypted("the private key is encrypted; only plain PEM keys can be used")


def unreadable_because(path: Path) -> str | None:
    """Why a file cannot be read, in the words of the system; None where it can."""
    try:
        with path.open("rb") as file:
            file.read(1)
    except OSError as error:
        text = error.strerror or str(error)
        return text[:1].lower() + text[1:]
    return None
