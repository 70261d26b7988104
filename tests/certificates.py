"""Certificates for tests: an authority of one's own, and what it signs, as PEM files."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

NOW = datetime.datetime.now(datetime.UTC)
DAY = datetime.timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key."""

    cert: Path
    key: Path
    serial: int


class Authority:
    """Signs certificates in one folder; `ca` is its own certificate."""

    def __init__(self, folder: Path, name: str = "test authority") -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        self._certificate = (
            self._builder(self._name, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        self.ca = folder / f"{name.replace(' ', '-')}.pem"
        self.ca.write_bytes(self._certificate.public_bytes(serialization.Encoding.PEM))

    def _builder(self, name: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(NOW - DAY)
            .not_valid_after(NOW + DAY)
        )

    def issue(self, file: str, *, address: str = "127.0.0.1", password: bytes | None = None) -> Pair:
        """A certificate for an address, or for nobody in particular; files of that name are replaced."""
        key = ec.generate_private_key(ec.SECP256R1())
        signer = self._certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
        certificate = (
            self._builder(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, file)]), key)
            .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(signer), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        pair = Pair(self._folder / f"{file}.pem", self._folder / f"{file}.key", certificate.serial_number)
        pair.cert.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        pair.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption(),
            )
        )
        return pair

    def trusting(self, pair: Pair | None = None, *, alpn: list[str] | None = None) -> ssl.SSLContext:
        """A client's context that trusts this authority, and shows a certificate if it is given one."""
        context = ssl.create_default_context(cafile=self.ca)
        if pair is not None:
            context.load_cert_chain(pair.cert, pair.key)
        if alpn is not None:
            context.set_alpn_protocols(alpn)
        return context

    def serving(self, pair: Pair, *, client_ca: Path | None = None) -> ssl.SSLContext:
        """A server's context; with `client_ca` its clients must show a certificate."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pair.cert, pair.key)
        if client_ca is not None:
            context.load_verify_locations(cafile=client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
        return context


def serial_of(der: bytes) -> int:
    """The serial number of a certificate that a peer showed."""
    return x509.load_der_x509_certificate(der).serial_number
