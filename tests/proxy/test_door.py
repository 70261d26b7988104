"""Listeners: addresses, PROXY headers, TLS, and how each is refused."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest
from doors import CHAT, PATH, PROXIED, asked, counted, listening
from fakes import RawClient, decoded, run
from tailrace.proxy.config import ConfigError
from tailrace.proxy.door import bind
from tailrace.proxy.listener import Listener

LOCAL = b"\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x00"


def test_every_kind_of_address_at_once(tmp_path: Path):
    async def body():
        listen = f'[127.0.0.1:0, "[::1]:0", "unix:{tmp_path}/s", {{address: "localhost:0", proxy_protocol: true}}]'
        async with listening(listen) as (process, upstream, _):
            four, six, unix, proxied = (door.shown for door in process.doors)
            assert (four[:17], six[:13], unix) == ("http://127.0.0.1:", "http://[::1]:", f"unix:{tmp_path}/s")
            for url, first in ((four, b""), (six, b""), (unix, b""), (proxied, PROXIED)):
                assert await asked(url, first=first) == 200
            told = [request.header("x-forwarded-for") for request in upstream.requests]
            assert told == ["127.0.0.1", "::1", "unix", "1.2.3.4"]

    run(body())


@pytest.mark.parametrize("listen", ["127.0.0.1:0", '{address: "127.0.0.1:0"}', '[{address: "127.0.0.1:0"}]'])
def test_one_listener_needs_no_list(listen: str):
    async def body():
        async with listening(listen) as (process, _, _):
            assert await asked(process.doors[0].shown) == 200

    run(body())


@pytest.mark.parametrize(
    "listen",
    [
        "[]",
        "80",
        "localhost",
        "example.org:80",
        "'::1:80'",
        "unix:relative",
        "127.0.0.1:70000",
        "{address: 'a:1', x: 1}",
    ],
)
def test_a_bad_address_is_a_fault_of_the_file(listen: str):
    with pytest.raises(ConfigError, match="listen"):
        decoded(f"listen: {listen}\nmodels: {{m: {{workers: ['http://a:1']}}}}\n")


def test_a_socket_file_that_nobody_listens_on_is_replaced(tmp_path: Path):
    listener = Listener(address=f"unix:{tmp_path}/s")
    first = bind(listener)
    with pytest.raises(OSError, match="listens on"):
        bind(listener)
    first.close()
    bind(listener).close()
    (tmp_path / "file").write_text("precious")
    with pytest.raises(OSError, match="no socket"):
        bind(Listener(address=f"unix:{tmp_path}/file"))
    assert (tmp_path / "file").read_text() == "precious"


class TestProxyProtocol:
    LISTEN = '{address: "127.0.0.1:0", proxy_protocol: true}'

    def test_the_header_names_the_client_and_may_come_in_pieces(self):
        async def body():
            async with listening(self.LISTEN) as (process, upstream, _):
                async with RawClient(process.doors[0].shown) as client:
                    for byte in PROXIED:
                        await client.send(bytes([byte]))
                        await asyncio.sleep(0)
                    assert (await client.post(PATH, CHAT)).status == 200
                    assert (await client.post(PATH, CHAT)).status == 200
                assert [request.header("x-forwarded-for") for request in upstream.requests] == ["1.2.3.4"] * 2

        run(body())

    def test_the_request_may_come_in_the_same_segment(self):
        async def body():
            async with listening(self.LISTEN) as (process, _, _):
                async with RawClient(process.doors[0].shown) as client:
                    await client.send(PROXIED + b"GET /v1/models HTTP/1.1\r\nhost: a\r\n\r\n")
                    assert (await client.read_answer()).status == 200

        run(body())

    @pytest.mark.parametrize("header", [b"PROXY UNKNOWN\r\n", LOCAL])
    def test_a_header_that_speaks_for_nobody_leaves_the_sockets_own_address(self, header: bytes):
        async def body():
            async with listening(self.LISTEN) as (process, upstream, faults):
                assert await asked(process.doors[0].shown, first=header) == 200
                assert upstream.requests[0].header("x-forwarded-for") == "127.0.0.1"
                assert faults() == []

        run(body())

    def test_what_the_header_says_of_tls_is_passed_on(self):
        async def body():
            async with listening(self.LISTEN) as (process, upstream, _):
                addresses = bytes([1, 2, 3, 4, 10, 0, 0, 1, 3, 232, 1, 187])
                over_tls = LOCAL[:12] + b"\x21\x11\x00\x14" + addresses + b"\x20\x00\x05\x01\0\0\0\0"
                assert await asked(process.doors[0].shown, first=over_tls) == 200
                assert upstream.requests[0].header("x-forwarded-proto") == "https"

        run(body())

    @pytest.mark.parametrize(
        "first", [b"GET /v1/models HTTP/1.1\r\nhost: a\r\n\r\n", b"PROXY TCP4 x\r\n", b"\x16\x03\x01"]
    )
    def test_a_missing_or_malformed_header_closes_and_counts(self, first: bytes, caplog):
        async def body():
            async with listening(self.LISTEN) as (process, upstream, faults):
                for _ in range(2):
                    async with RawClient(process.doors[0].shown) as client:
                        await client.send(first)
                        assert await client.read_until_close() == b""
                assert await counted(faults, 2) == ["proxy_header"] * 2
                assert upstream.requests == []
                assert await asked(process.doors[0].shown, first=PROXIED) == 200

        with caplog.at_level(logging.WARNING):
            run(body())
        # The log is told once in a while, not for each.
        assert len([record for record in caplog.records if "before its first request" in record.message]) == 1

    @pytest.mark.parametrize("first", [b"", b"PROXY TCP4 1.2"])
    def test_a_header_that_does_not_come_is_not_waited_for_long(self, first: bytes):
        async def body():
            async with listening(self.LISTEN, "timeouts: {client_head: 0.1s}") as (process, _, faults):
                async with RawClient(process.doors[0].shown) as client:
                    await client.send(first)
                    assert await client.read_until_close() == b""
                assert await counted(faults, 1) == ["proxy_header"]

        run(body())

    def test_a_health_check_that_only_connects_is_counted(self):
        async def body():
            async with listening(self.LISTEN) as (process, _, faults):
                await (await RawClient.connect(process.doors[0].shown)).close()
                assert await counted(faults, 1) == ["proxy_header"]

        run(body())

    def test_those_who_have_not_said_who_they_are_count_as_connections(self):
        async def body():
            async with listening(self.LISTEN, "limits: {connections: 3}") as (process, _, _):
                url = process.doors[0].shown
                waiting = [await RawClient.connect(url) for _ in range(3)]
                await asyncio.sleep(0.05)
                async with RawClient(url) as client:
                    assert await client.read_until_close() == b""
                for client in waiting:
                    await client.send(PROXIED)
                    assert (await client.get("/v1/models")).status == 200
                    await client.close()

        run(body())

    def test_the_limit_for_each_address_is_about_the_client_that_the_header_names(self):
        async def body():
            async with listening(self.LISTEN, "limits: {connections_per_address: 1}") as (process, _, _):
                url = process.doors[0].shown
                async with RawClient(url) as first, RawClient(url) as second, RawClient(url) as third:
                    await first.send(PROXIED)
                    assert (await first.get("/v1/models")).status == 200
                    await second.send(PROXIED)
                    assert await second.read_until_close() == b""
                    await third.send(PROXIED.replace(b"1.2.3.4", b"1.2.3.5"))
                    assert (await third.get("/v1/models")).status == 200

        run(body())

    def test_forwarded_headers_are_believed_of_the_client_that_the_header_names(self):
        async def body():
            listen = '{address: "127.0.0.1:0", proxy_protocol: true, trusted_proxies: [1.2.3.4]}'
            async with listening(listen) as (process, upstream, _):
                for header in (PROXIED, PROXIED.replace(b"1.2.3.4", b"9.9.9.9")):
                    async with RawClient(process.doors[0].shown) as client:
                        await client.send(header)
                        await client.post(PATH, CHAT, {"x-forwarded-for": "5.5.5.5"})
                assert [request.header("x-forwarded-for") for request in upstream.requests] == ["5.5.5.5", "9.9.9.9"]

        run(body())

    def test_closing_lets_those_who_are_arriving_go_on(self):
        async def body():
            async with listening(self.LISTEN) as (process, _, _):
                url = process.doors[0].shown
                client = await RawClient.connect(url)
                await client.send(PROXIED[:10])
                await asyncio.sleep(0.05)
                process.doors[0].close()
                with pytest.raises(ConnectionError):
                    await RawClient.connect(url)
                await client.send(PROXIED[10:])
                assert (await client.get("/v1/models")).status == 200
                await client.close()

        run(body())
