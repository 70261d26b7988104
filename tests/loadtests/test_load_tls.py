"""An https endpoint: verified, and refused when its certificate is not trusted."""

import asyncio
import datetime
import ipaddress
import os
import ssl
import sys
from pathlib import Path

from conftest import LOADTESTS
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from scripted_endpoint import GOOD_STREAM, serving


def certificate(folder: Path) -> Path:
    """A file with a fresh key and its self-signed certificate for 127.0.0.1."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "loadtest")])
    now = datetime.datetime.now(datetime.UTC)
    signed = (
        x509.CertificateBuilder(subject_name=name, issuer_name=name, public_key=key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file = folder / "tls.pem"
    file.write_bytes(private + signed.public_bytes(serialization.Encoding.PEM))
    return file


def run(file: Path, *, trusted: bool) -> tuple[int, str]:
    async def body() -> tuple[int, str]:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(file)
        async with serving(lambda n: [GOOD_STREAM], tls=context) as endpoint:
            command = [str(LOADTESTS / "load.py"), "--url", endpoint.url.replace("http", "https")]
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *(*command, "--rate", "50", "--duration", "0.1", "--arrivals", "constant"),
                env=os.environ | ({"SSL_CERT_FILE": str(file)} if trusted else {}),
                stdout=asyncio.subprocess.PIPE,
            )
            out, _ = await process.communicate()
            assert process.returncode is not None
            return process.returncode, out.decode()

    return asyncio.run(body())


def test_https_is_spoken_where_the_certificate_is_trusted(tmp_path: Path) -> None:
    status, out = run(certificate(tmp_path), trusted=True)
    assert (status, "errors: none" in out) == (0, True)


def test_an_untrusted_certificate_is_a_failed_connection(tmp_path: Path) -> None:
    status, out = run(certificate(tmp_path), trusted=False)
    assert (status, "connection_failed 5" in out, "CERTIFICATE_VERIFY_FAILED" in out) == (1, True, True)
