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
    event,
    gateway,
    json_answer,
    run,
    sending,
    sse_answer,
    sse_head,
    stream_of,
)
from tailrace.proxy.outcome import AttemptEnd, Ending

from cases.scene import CHAT, END, PATH, ROLE, STREAM, closed_promptly, framed, scene, until


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


async def endless(conn, request):
    await conn.send(sse_head() + chunked(ROLE))
    while True:
        await conn.send(chunked(chat_chunk("x")))
        await asyncio.sleep(0.01)


async def silent(conn, request):
    await conn.wait_closed()


async def head_only(conn, request):
    await conn.send(sse_head())
    await conn.wait_closed()


async def role_only(conn, request):
    await conn.send(sse_head() + chunked(ROLE))
    await conn.wait_closed()


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


# Every way in which a call can end: what the client does or sees, the ending, and how the attempts end.


async def leaves(s):
    client = await s.begin()
    await client.read_until(b'"x"')
    await client.close()


async def leaves_early(s):
    client = await s.begin()
    await s.upstream.asked()
    await client.close()


async def leaves_uploading(s):
    client = await s.client()
    await client.request("POST", PATH, b'{"model": "m"', {"content-length": "1000"})
    await until(lambda: s.process.service.active == 1, "the call")
    client.rst()


def asks(status, **changes):
    async def act(s):
        answer = await s.ask({**STREAM, **changes})
        assert answer.status == status

    return act


async def uploads_too_much(s):
    client = await s.client()
    await client.request("POST", PATH, headers={"content-length": "99999999"})
    assert (await client.read_answer()).status == 413


async def uploads_too_much_in_chunks(s):
    client = await s.client()
    await client.send(b"POST %b HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n" % PATH.encode())
    await until(lambda: s.process.service.active == 1, "the call")
    await client.send(b"2000\r\n" + b"x" * 0x2000 + b"\r\n")
    assert (await client.read_until_close()).count(b"HTTP/1.1 ") == 1


async def role_then_error(conn, request):
    await conn.send(sse_head() + framed([ROLE, event({"error": {"message": "x", "code": 500}})]) + END)


async def text_then_reset(conn, request):
    await conn.send(sse_head() + framed([ROLE, chat_chunk("x")]))
    await asyncio.sleep(0.02)
    conn.rst()


async def resets(conn, request):
    conn.rst()


async def text_then_silence(conn, request):
    await conn.send(sse_head() + framed([ROLE, chat_chunk("x")]))
    await conn.wait_closed()


FAILED, CANCELLED, WON = AttemptEnd.FAILED, AttemptEnd.CANCELLED, AttemptEnd.WON
ENDINGS = {
    "completed": (sse_answer(stream_of(["x"])), asks(200), Ending.COMPLETED, [WON]),
    "unary": (json_answer(chat_answer("x")), asks(200, stream=False), Ending.COMPLETED, [WON]),
    "left mid-stream": (endless, leaves, Ending.CLIENT_GONE, [CANCELLED]),
    "left before an answer": (silent, leaves_early, Ending.CLIENT_GONE, [CANCELLED]),
    "left uploading": (silent, leaves_uploading, Ending.CLIENT_GONE, []),
    "unknown model": (silent, asks(404, model="nobody"), Ending.REFUSED, []),
    "no model": (silent, asks(400, model=7), Ending.REFUSED, []),
    "too large": (silent, uploads_too_much_in_chunks, Ending.REFUSED, []),
    "error status": (json_answer({"error": {"message": "x"}}, 504), asks(504), Ending.FAILED, [FAILED]),
    "client's error": (json_answer({"error": {"message": "x"}}, 400), asks(400), Ending.REFUSED, [FAILED]),
    "error event": (role_then_error, asks(500), Ending.FAILED, [FAILED]),
    "reset early": (resets, asks(502), Ending.FAILED, [FAILED]),
    "reset mid-stream": (text_then_reset, asks(200), Ending.UPSTREAM_LOST, [FAILED]),
    "first content": (silent, asks(504), Ending.DEADLINE, [FAILED]),
    "gap": (text_then_silence, asks(200), Ending.UPSTREAM_LOST, [FAILED]),
    "garbage": (b"SMTP ready\r\n\r\n", asks(502), Ending.FAILED, [FAILED]),
}
TIGHT = """
timeouts: {first_content_base: 0.2, gap: 0.2}
limits: {body: 4096}
heartbeat: 0
"""


@pytest.mark.parametrize("name", ENDINGS)
def test_DIS_11_every_ending_is_told_once(name):
    """`on_complete` once, `on_attempt_end` once an attempt, nothing held; and the next call is served."""
    script, act, ending, ends = ENDINGS[name]

    async def body():
        async with scene(script, more=TIGHT, plugins="[cases.witness:Tapped]") as s:
            for count in (1, 2):
                await act(s)
                assert (await s.outcome(count)).ending is ending
                await s.at_rest()
                assert s.witness.ends == ends * count
                assert [call.outcome for call in s.witness.calls] == s.witness.outcomes
            for watch in s.witness.watches:
                assert [outcome.ending for outcome in watch.outcomes] == [ending]
            s.upstream.scripts = [sending(json_answer(chat_answer("well")))]
            assert (await s.ask(CHAT)).status == 200

    run(body())


def test_DIS_06_and_08_no_slot_is_lost():
    """Many calls at once, each ending in a way of its own, leave every counter at 0."""
    names = [name for name, (_, _, _, ends) in ENDINGS.items() if ends and name not in ("first content", "gap")]
    names.remove("left before an answer")

    async def script(conn, request):
        answer = ENDINGS[request.header("x-ending")][0]
        await (answer if callable(answer) else sending(answer))(conn, request)

    async def one(s, name):
        client = await s.client()
        await client.request("POST", PATH, orjson.dumps(STREAM), {"x-ending": name})
        if name.startswith("left"):
            await client.read_until(b'"x"')
            client.rst()
        else:
            await client.read_head()
            await client.close()

    async def body():
        async with scene(script, more=TIGHT) as s:
            for _ in range(5):
                await asyncio.gather(*[one(s, name) for name in names * 3])
            await s.at_rest()
            assert all(worker.inflight == 0 for worker in s.process.roster.workers)

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
