"""Client disconnect and cancellation."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import ssl

import orjson
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from fakes import (
    RawClient,
    Upstream,
    chat_answer,
    chat_chunk,
    chunked,
    gateway,
    json_answer,
    run,
    sse_head,
)
from tailrace.proxy.outcome import AttemptEnd, Ending

from cases.scene import CHAT, PATH, ROLE, STREAM, closed_promptly, framed, scene, until
from cases.scripts import endless, head_only, role_only, silent


def certificates(folder):
    """A server's context for 127.0.0.1, and the file that says whom to trust."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tailrace test")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now)
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem, private = folder / "cert.pem", folder / "key.pem"
    pem.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem, private)
    return context, pem


async def gone(client, how):
    if how == "fin":
        await client.close()
    elif how == "rst":
        client.rst()
    else:
        client.fin()


@pytest.mark.parametrize("how", ["fin", "rst", "half"])
def test_DIS_01_stop_button_mid_stream(how):
    async def body():
        async with scene(endless) as s:
            client = await s.begin()
            await client.read_until(b'"x"')
            await gone(client, how)
            await closed_promptly(s.upstream)
            outcome = await s.outcome()
            assert (outcome.ending, outcome.status) == (Ending.CLIENT_GONE, 499)
            assert s.witness.ends == [AttemptEnd.CANCELLED]

    run(body())


@pytest.mark.parametrize("how", ["fin", "rst", "half"])
@pytest.mark.parametrize("script", [silent, head_only, role_only])
def test_DIS_02_gone_before_the_first_token(script, how):
    async def body():
        async with scene(script) as s:
            client = await s.begin()
            await s.upstream.asked()
            await asyncio.sleep(0.02)
            await gone(client, how)
            await closed_promptly(s.upstream)
            assert (await s.outcome()).ending is Ending.CLIENT_GONE
            assert s.witness.ends == [AttemptEnd.CANCELLED]
            assert s.witness.heads == []

    run(body())


@pytest.mark.parametrize("how", ["fin", "rst", "half"])
def test_DIS_02_gone_during_the_upload(how):
    async def body():
        async with scene(silent) as s:
            client = await s.client()
            await client.request("POST", PATH, b'{"model": "m"', {"content-length": "1000"})
            await until(lambda: s.process.service.active == 1, "the call")
            await gone(client, how)
            assert (await s.outcome()).ending is Ending.CLIENT_GONE
            await s.at_rest()
            assert not s.process.service.connections
            assert s.upstream.requests == []

    run(body())


@pytest.mark.parametrize("how", ["fin", "rst"])
def test_DIS_02_gone_while_a_connection_is_opened(how):
    async def body():
        async with scene(silent) as s:
            opened = asyncio.Event()
            address = s.process.pools["model:m"].workers[0].address

            class Slow(type(address)):
                async def open(self, *_):
                    opened.set()
                    await asyncio.Event().wait()

            s.process.pools["model:m"].workers[0].connections.address = Slow.parse(s.upstream.url)
            client = await s.begin()
            await opened.wait()
            await gone(client, how)
            assert (await s.outcome()).ending is Ending.CLIENT_GONE
            assert s.upstream.requests == []

    run(body())


def test_DIS_04_gone_while_queued():
    release = asyncio.Event()

    async def held(conn, request):
        await release.wait()
        await conn.send(json_answer(chat_answer("a")))

    async def body():
        async with scene(held, plugins="[cases.policies:Queue, cases.witness:Witness]") as s:
            queue = s.process.service.chain.pipeline.links[0].plugin
            first = await s.begin(CHAT)
            await s.upstream.asked()
            second = await s.begin(CHAT)
            await until(lambda: queue.waiting == 1, "the queue")
            await second.close()
            assert (await s.outcome()).ending is Ending.CLIENT_GONE
            assert queue.waiting == 0
            release.set()
            assert (await first.read_answer()).status == 200
            assert len(s.upstream.requests) == 1

    run(body())


def test_DIS_10_tls_upstream_is_closed_too(tmp_path):
    served, trusted = certificates(tmp_path)

    async def flooding(conn, request):
        await conn.send(sse_head() + framed([ROLE, chat_chunk("x")]))
        while True:
            await conn.send(chunked(b": " + b"x" * 65536 + b"\n\n"))

    async def body():
        async with Upstream(flooding, tls=served) as upstream:
            pool = (
                f"pools: {{p: {{workers: ['{upstream.url}'], tls: {{ca: {trusted}}}}}}}\nmodels: {{m: {{pool: p}}}}\n"
            )
            async with (
                gateway(f"listen: [127.0.0.1:0]\n{pool}") as process,
                RawClient(process.doors[0].shown) as client,
            ):
                await client.request("POST", PATH, orjson.dumps(STREAM))
                await client.read_until(b'"x"')
                client.rst()
                await closed_promptly(upstream)

    run(body())


def test_DIS_11_gone_while_its_answer_is_written():
    """A client that takes nothing and then leaves: the worker was held back, and is let go at once."""

    async def flooding(conn, request):
        await conn.send(sse_head() + framed([ROLE, chat_chunk("x")]))
        while True:
            await conn.send(chunked(b": " + b"x" * 16384 + b"\n\n"))

    async def body():
        async with scene(flooding) as s:
            client = await s.begin()
            await client.read_until(b'"x"')
            connection = s.upstream.connections[0]
            await until(lambda: not connection._writable.is_set(), "backpressure")
            client.rst()
            await closed_promptly(s.upstream)
            assert (await s.outcome()).ending is Ending.CLIENT_GONE

    run(body())
