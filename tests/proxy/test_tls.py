"""TLS towards workers: who is believed, what is shown to them, and how its failures are told."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from certificates import Authority, Pair
from fakes import CHAT, GOOD, PATH, RawClient, Upstream, chat_chunk, chunked, gateway, run, sse_head
from tailrace.proxy.client_tls import ClientTls
from tailrace.proxy.listener import ServerTls
from tailrace.proxy.tls import ClientContext, ServerContext


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def stranger(tmp_path: Path) -> Authority:
    (tmp_path / "stranger").mkdir()
    return Authority(tmp_path / "stranger", "a stranger")


@asynccontextmanager
async def asking(upstream: Upstream, ca: Path | None = None, pair: Pair | None = None, connect: str = "1s"):
    """A gateway that reaches its worker with these files."""
    files = {"ca": ca, "cert": pair and pair.cert, "key": pair and pair.key}
    tls = ", ".join(f'{name}: "{file}"' for name, file in files.items() if file)
    yaml = (
        f"listen: 127.0.0.1:0\nmodels: {{m: {{pool: p}}}}\ntimeouts: {{connect: {connect}}}\n"
        f'pools: {{p: {{workers: ["{upstream.url}"], tls: {{{tls}}}}}}}\n'
    )
    async with gateway(yaml) as process, RawClient(process.doors[0].shown) as client:
        yield process, client


def test_a_worker_behind_tls(authority: Authority):
    async def body():
        async with Upstream(GOOD, tls=authority.serving(authority.issue("worker"))) as upstream:
            assert upstream.url.startswith("https://")
            async with asking(upstream, authority.ca) as (process, client):
                for _ in range(3):
                    assert (await client.post(PATH, CHAT)).status == 200
                (worker,) = process.workers()
                # One in use and the spare: the handshake is not on the path of each request.
                assert len(upstream.connections) <= 2
                assert worker.connections.open == len(upstream.connections)

    run(body())


async def failure(client: RawClient) -> str:
    got = await client.post(PATH, CHAT)
    error = got.json()["error"]
    assert (got.status, error["code"]) == (503, "worker_unreachable")
    return str(error["message"])


def test_a_worker_of_another_authority_is_refused_with_the_reason(authority: Authority, stranger: Authority):
    async def body():
        async with Upstream(GOOD, tls=stranger.serving(stranger.issue("worker"))) as upstream:
            async with asking(upstream, authority.ca) as (_, client):
                assert "certificate refused" in await failure(client)
                assert upstream.requests == []

    run(body())


def test_a_certificate_for_another_address_is_refused_with_the_reason(authority: Authority):
    async def body():
        elsewhere = authority.issue("worker", address="10.1.2.3")
        async with Upstream(GOOD, tls=authority.serving(elsewhere)) as upstream:
            async with asking(upstream, authority.ca) as (_, client):
                assert "IP address mismatch" in await failure(client)

    run(body())


def test_a_worker_that_speaks_no_tls_is_a_failed_connection(authority: Authority):
    async def body():
        async with Upstream(GOOD) as plain:
            plain.url = plain.url.replace("http:", "https:")
            async with asking(plain, authority.ca, connect="0.2s") as (_, client):
                assert "No connection to a worker" in await failure(client)
                assert plain.requests == []

    run(body())


def test_a_worker_that_never_answers_the_handshake_is_given_up(authority: Authority):
    async def body():
        async def mute(reader, writer):
            await reader.read()
            writer.close()

        server = await asyncio.start_server(mute, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        yaml = (
            "listen: 127.0.0.1:0\nmodels: {m: {pool: p}}\ntimeouts: {connect: 0.2s}\n"
            f'pools: {{p: {{workers: ["https://127.0.0.1:{port}"], tls: {{ca: "{authority.ca}"}}}}}}\n'
        )
        async with gateway(yaml) as process, RawClient(process.doors[0].shown) as client:
            assert "no answer within 0.2 s" in await failure(client)
            assert all(worker.connections.open == 0 for worker in process.workers())
        server.close()

    run(body())


def test_mutual_tls(authority: Authority, stranger: Authority):
    async def body():
        serving = authority.serving(authority.issue("worker"), client_ca=authority.ca)
        async with Upstream(GOOD, tls=serving) as upstream:
            async with asking(upstream, authority.ca, authority.issue("gateway")) as (_, client):
                assert (await client.post(PATH, CHAT)).status == 200
            for pair in (None, stranger.issue("gateway")):
                async with asking(upstream, authority.ca, pair) as (_, client):
                    got = await client.post(PATH, CHAT)
                    # In TLS 1.3 the worker refuses a client's certificate after the handshake.
                    assert got.status in (502, 503)
            assert len(upstream.requests) == 1

    run(body())


def test_changed_files_are_taken_up_by_new_connections(authority: Authority, stranger: Authority, caplog):
    async def body():
        serving = authority.serving(authority.issue("worker"), client_ca=stranger.ca)
        pair = authority.issue("gateway")
        async with Upstream(GOOD, tls=serving) as upstream:
            async with asking(upstream, authority.ca, pair) as (_, client):
                assert (await client.post(PATH, CHAT)).status in (502, 503)
                fresh = stranger.issue("gateway")
                pair.cert.write_bytes(fresh.cert.read_bytes())
                pair.key.write_bytes(fresh.key.read_bytes())
                assert (await client.post(PATH, CHAT)).status == 200

    run(body())


def test_bad_files_leave_the_last_good_ones_in_use(authority: Authority, caplog):
    pair = authority.issue("gateway")
    context = ClientContext(ClientTls(ca=authority.ca, cert=pair.cert, key=pair.key))
    first = context.current()
    assert context.current() is first
    good = pair.cert.read_bytes()
    pair.cert.write_text("nonsense")
    assert context.current() is first
    pair.cert.unlink()
    for _ in range(3):
        assert context.current() is first
    pair.cert.write_bytes(good)
    second = context.current()
    assert second is not first
    assert context.current() is second
    assert [record.levelno for record in caplog.records] == [logging.ERROR] * 2
    assert caplog.messages[0].endswith(f"the old ones stay: {pair.cert} holds no PEM certificate")


def test_bad_files_of_a_listener_are_named(authority: Authority):
    pair, other = authority.issue("front"), authority.issue("other")
    context = ServerContext(ServerTls(cert=pair.cert, key=pair.key))
    first = context.context
    pair.key.write_bytes(other.key.read_bytes())
    with pytest.raises(OSError) as failed:
        context.refresh()
    assert str(failed.value) == f"{pair.key} does not belong to the certificate in {pair.cert}"
    assert not context.refresh()
    assert context.context is first


def test_an_encrypted_key_is_refused_and_nobody_is_asked_for_its_password(authority: Authority):
    from cryptography.hazmat.primitives import serialization

    pair = authority.issue("gateway")
    key = serialization.load_pem_private_key(pair.key.read_bytes(), None)
    pair.key.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    with pytest.raises(OSError, match="encrypted"):
        ClientContext(ClientTls(ca=authority.ca, cert=pair.cert, key=pair.key))


@pytest.mark.parametrize("paused", [False, True])
def test_DIS_10_a_worker_behind_tls_hears_at_once_that_the_client_left(authority: Authority, paused: bool):
    async def body():
        async def flood(conn, request):
            await conn.send(sse_head() + chunked(chat_chunk("a")))
            while True:
                await conn.send(chunked(chat_chunk("x" * 65536)))

        async with Upstream(flood, tls=authority.serving(authority.issue("worker"))) as upstream:
            async with asking(upstream, authority.ca) as (process, client):
                await client.request("POST", PATH, b'{"model":"m","messages":[],"stream":true}')
                if paused:
                    # Until the gateway has stopped reading from the worker.
                    while not any(connection.paused for connection in process.service.connections):
                        await asyncio.sleep(0.01)
                else:
                    await client.read_some()
                client.rst()
                async with asyncio.timeout(1):
                    while not upstream.closed_at:
                        await asyncio.sleep(0.005)
                (worker,) = process.workers()
                assert worker.inflight == 0

    run(body())
