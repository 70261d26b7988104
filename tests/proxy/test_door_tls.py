"""Listeners with TLS: certificates that change, clients that must show one, and what comes before the handshake."""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
import stat
from pathlib import Path

import pytest
from certificates import Authority, serial_of
from doors import CHAT, PATH, PROXIED, asked, counted, listening
from fakes import RawClient, run


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def listen_on(pair, more: str = "") -> str:
    return f'{{address: "127.0.0.1:0", tls: {{cert: "{pair.cert}", key: "{pair.key}"{more}}}}}'


async def seen(url: str, context: ssl.SSLContext) -> tuple[int, str | None]:
    """Which certificate a client is shown, and the protocol agreed upon."""
    async with RawClient(url, tls=context) as client:
        assert (await client.post(PATH, CHAT)).status == 200
        tls = client._writer.get_extra_info("ssl_object")
        return serial_of(tls.getpeercert(binary_form=True)), tls.selected_alpn_protocol()


def test_https_with_http_1_1_only(authority: Authority):
    async def body():
        pair = authority.issue("server")
        async with listening(listen_on(pair)) as (process, upstream, faults):
            url = process.doors[0].shown
            assert url.startswith("https://")
            offered = authority.trusting(alpn=["h2", "http/1.1"])
            assert await seen(url, offered) == (pair.serial, "http/1.1")
            assert await seen(url, authority.trusting()) == (pair.serial, None)
            assert upstream.requests[0].header("x-forwarded-proto") == "https"
            # Plain HTTP on the port is no request.
            async with RawClient(url) as client:
                await client.send(b"GET /v1/models HTTP/1.1\r\nhost: a\r\n\r\n")
                assert b"HTTP/1.1" not in await client.read_until_close()
            assert await counted(faults, 1) == ["tls_handshake"]

    run(body())


def test_old_protocols_are_refused(authority: Authority):
    async def body():
        async with listening(listen_on(authority.issue("server"))) as (process, _, _):
            old = authority.trusting()
            with pytest.warns(DeprecationWarning):
                old.minimum_version = ssl.TLSVersion.TLSv1
                old.maximum_version = ssl.TLSVersion.TLSv1_1
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await RawClient.connect(process.doors[0].shown, tls=old)

    run(body())


def test_a_changed_certificate_is_for_new_connections(authority: Authority, caplog):
    async def body():
        first = authority.issue("server")
        async with listening(listen_on(first)) as (process, _, _):
            (door,) = process.doors
            async with RawClient(door.shown, tls=authority.trusting()) as old:
                assert (await old.get("/v1/models")).status == 200
                second = authority.issue("server")
                door.refresh_tls()
                assert await seen(door.shown, authority.trusting()) == (second.serial, None)
                assert (await old.get("/v1/models")).status == 200
                # Half of a pair: the old one stays until the other half is there.
                key = second.key.read_bytes()
                third = authority.issue("server")
                new_key = third.key.read_bytes()
                third.key.write_bytes(key)
                door.refresh_tls()
                door.refresh_tls()
                assert await seen(door.shown, authority.trusting()) == (second.serial, None)
                third.key.write_bytes(new_key)
                door.refresh_tls()
                assert await seen(door.shown, authority.trusting()) == (third.serial, None)
                assert not door.certificate_fault
                good = third.cert.read_bytes()
                third.cert.write_text("nonsense")
                door.refresh_tls()
                assert door.certificate_fault.endswith(f"the old one stays: {third.cert} holds no PEM certificate")
                aside = third.cert.rename(third.cert.with_suffix(".aside"))
                for _ in range(2):
                    door.refresh_tls()
                    assert "No such file" in door.certificate_fault
                assert await seen(door.shown, authority.trusting()) == (third.serial, None)
                aside.rename(third.cert)
                door.refresh_tls()
                assert "holds no PEM certificate" in door.certificate_fault
                third.cert.write_bytes(good)
                door.refresh_tls()
                assert not door.certificate_fault

    with caplog.at_level(logging.INFO):
        run(body())
    messages = [record.message for record in caplog.records if "certificate" in record.message]
    assert [("read again" in message, "old one stays" in message) for message in messages] == [
        (True, False),
        (False, True),
        (True, False),
        *[(False, True)] * 3,
        (True, False),
    ]


def test_clients_must_show_a_certificate_where_that_is_asked(authority: Authority, tmp_path: Path):
    async def body():
        (tmp_path / "others").mkdir()
        other = Authority(tmp_path / "others", "another authority")
        ca = tmp_path / "clients.pem"
        ca.write_bytes(authority.ca.read_bytes())
        listen = listen_on(authority.issue("server"), f', client_ca: "{ca}"')
        async with listening(listen) as (process, upstream, faults):
            (door,) = process.doors
            ours, theirs = authority.issue("client"), other.issue("client")
            assert await asked(door.shown, tls=authority.trusting(ours)) == 200
            for pair in (None, theirs):
                with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
                    await asked(door.shown, tls=authority.trusting(pair))
            assert await counted(faults, 2) == ["tls_handshake"] * 2
            # An authority that was replaced is no longer believed.
            ca.write_bytes(other.ca.read_bytes())
            door.refresh_tls()
            assert await asked(door.shown, tls=authority.trusting(theirs)) == 200
            with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
                await asked(door.shown, tls=authority.trusting(ours))
            assert len(upstream.requests) == 2

    run(body())


def test_the_proxy_header_comes_before_the_handshake(authority: Authority):
    async def body():
        pair = authority.issue("server")
        listen = listen_on(pair).replace("tls:", "proxy_protocol: true, tls:")
        async with listening(listen) as (process, upstream, faults):
            port = int(process.doors[0].shown.rpartition(":")[2])
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(PROXIED)
            await writer.start_tls(authority.trusting(), server_hostname="127.0.0.1")
            writer.write(b"POST %b HTTP/1.1\r\nhost: a\r\ncontent-length: 27\r\n\r\n" % PATH.encode())
            writer.write(b'{"model":"m","messages":[]}')
            assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 200")
            writer.close()
            assert upstream.requests[0].header("x-forwarded-for") == "1.2.3.4"
            assert upstream.requests[0].header("x-forwarded-proto") == "https"
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await RawClient.connect(process.doors[0].shown, tls=authority.trusting())
            assert await counted(faults, 1) == ["proxy_header"]

    run(body())


def test_a_handshake_that_does_not_come_is_not_waited_for_long(authority: Authority):
    async def body():
        listen = listen_on(authority.issue("server"))
        async with listening(listen, "timeouts: {client_head: 0.1s}") as (process, _, faults):
            async with RawClient(process.doors[0].shown) as client:
                await client.send(b"\x16\x03\x01")
                await client.read_until_close()
            assert await counted(faults, 1) == ["tls_handshake"]
            assert await asked(process.doors[0].shown, tls=authority.trusting()) == 200

    run(body())


def test_a_unix_socket_may_have_tls_too(authority: Authority, tmp_path: Path):
    async def body():
        pair = authority.issue("server")
        listen = listen_on(pair).replace("127.0.0.1:0", f"unix:{tmp_path}/s")
        async with listening(listen):
            assert stat.S_ISSOCK(os.stat(tmp_path / "s").st_mode)
            reader, writer = await asyncio.open_unix_connection(
                f"{tmp_path}/s", ssl=authority.trusting(), server_hostname="127.0.0.1"
            )
            writer.write(b"GET /v1/models HTTP/1.1\r\nhost: a\r\n\r\n")
            assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 200")
            writer.close()

    run(body())
