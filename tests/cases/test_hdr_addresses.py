"""Headers: who the client is, and who may say so."""

from __future__ import annotations

import orjson
import pytest
from fakes import GOOD, RawClient, Request, Upstream, gateway, run, yaml_for

from cases.scene import CHAT, PATH, scene

FORGED = {
    "X-Forwarded-For": "6.6.6.6",
    "X-Forwarded-Proto": "https",
    "X-Forwarded-Host": "evil",
    "X-Real-IP": "6.6.6.6",
    "Forwarded": "for=6.6.6.6",
    "CF-Connecting-IP": "6.6.6.6",
    "True-Client-IP": "6.6.6.6",
    "X-Client-IP": "6.6.6.6",
    "X-Tailrace-Peer": "6.6.6.6",
}


def addresses(request: Request) -> dict[str, str]:
    """What a worker is told about the client, and by how many headers."""
    told = [(name.lower(), value) for name, value in request.headers]
    assert len(told) == len(dict(told))
    return {name: value for name, value in told if "forwarded" in name or value.startswith("6.6.6.6") or "ip" in name}


def test_HDR_06_forged_addresses_of_strangers_are_ignored():
    async def body():
        async with scene(GOOD) as s:
            await s.ask(CHAT, headers=FORGED)
            assert addresses(s.upstream.requests[0]) == {"x-forwarded-for": "127.0.0.1", "x-forwarded-proto": "http"}
            assert s.witness.calls[0].peer.address == "127.0.0.1"

    run(body())


TRUSTED = {
    "one": ("1.2.3.4", "1.2.3.4"),
    "forged entry on the left": ("6.6.6.6, 1.2.3.4", "1.2.3.4"),
    "trusted hops on the right": ("6.6.6.6, 1.2.3.4, 10.0.0.1,10.9.9.9", "1.2.3.4"),
    "only trusted hops": ("10.0.0.1, 10.0.0.2", "10.0.0.1"),
    "nonsense ends the walk": ("1.2.3.4, unknown, 10.0.0.1", "10.0.0.1"),
    "nonsense alone": ("unknown", "127.0.0.1"),
    "empty": ("", "127.0.0.1"),
    "IPv6": ("2001:DB8::1", "2001:db8::1"),
    "IPv6 in brackets": ("[2001:db8::1]", "2001:db8::1"),
    "with ports": ("1.2.3.4:5678, 10.0.0.1:80", "1.2.3.4"),
    "IPv6 with a port": ("[2001:db8::1]:443", "2001:db8::1"),
    "mapped": ("::ffff:1.2.3.4", "1.2.3.4"),
}


@pytest.mark.parametrize(("forwarded", "client"), TRUSTED.values(), ids=TRUSTED)
def test_HDR_06_forwarded_addresses_of_trusted_hops(forwarded, client):
    async def body():
        async with Upstream(GOOD) as upstream:
            listen = '{address: "127.0.0.1:0", trusted_proxies: [127.0.0.0/8, 10.0.0.0/8]}'
            yaml = yaml_for(upstream).replace("listen: [127.0.0.1:0]", f"listen: {listen}")
            async with gateway(yaml) as process, RawClient(process.doors[0].shown) as http:
                headers = {"x-forwarded-for": forwarded, "x-forwarded-proto": "https", "x-real-ip": "6.6.6.6"}
                assert (await http.post(PATH, CHAT, headers)).status == 200
            told = addresses(upstream.requests[0])
            assert told == {"x-forwarded-for": client, "x-forwarded-proto": "https"}

    run(body())


def test_HDR_06_several_header_lines_are_one_list():
    async def body():
        async with Upstream(GOOD) as upstream:
            listen = '{address: "127.0.0.1:0", trusted_proxies: [127.0.0.0/8]}'
            yaml = yaml_for(upstream).replace("listen: [127.0.0.1:0]", f"listen: {listen}")
            async with gateway(yaml) as process, RawClient(process.doors[0].shown) as http:
                data = orjson.dumps(CHAT)
                lines = b"x-forwarded-for: 6.6.6.6\r\nx-forwarded-for: 1.2.3.4\r\ncontent-length: %d\r\n" % len(data)
                await http.send(b"POST %b HTTP/1.1\r\nhost: a\r\n%b\r\n%b" % (PATH.encode(), lines, data))
                assert (await http.read_answer()).status == 200
            assert addresses(upstream.requests[0])["x-forwarded-for"] == "1.2.3.4"

    run(body())
