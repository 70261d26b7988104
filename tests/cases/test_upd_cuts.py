"""What a client without chunks sees of an answer that is cut short, on each kind of listener (UPD-02)."""

from __future__ import annotations

import orjson
import pytest
from certificates import Authority
from fakes import RawClient, Upstream, gateway, run, yaml_for

from cases.scene import PATH, STREAM, errors_of, until
from cases.scripts import TEXT, dying

HALF = b'data: {"id'
WHOLE = b"".join(TEXT)


def listening(kind, folder):
    """A listener's YAML, and the context of its clients."""
    if kind == "tls":
        authority = Authority(folder)
        pair = authority.issue("server")
        return f'{{address: "127.0.0.1:0", tls: {{cert: "{pair.cert}", key: "{pair.key}"}}}}', authority.trusting()
    return ("127.0.0.1:0" if kind == "tcp" else f"unix:{folder}/gateway.sock"), None


async def seen(url, tls):
    """The body as far as it came, and whether the connection was reset."""
    async with RawClient(url, tls=tls) as client:
        await client.request("POST", PATH, orjson.dumps(STREAM), version="1.0")
        assert (await client.read_head()).status == 200
        body = b""
        try:
            while data := await client.read_some():
                body += data
        except ConnectionResetError:
            return body, True
        return body, False


@pytest.mark.parametrize("kind", ["tcp", "tls", "unix"])
@pytest.mark.parametrize("rest", [b"", HALF])
@pytest.mark.parametrize("how", ["fin", "malformed"])
def test_UPD_02_http_1_0_client_can_tell_on_every_listener(kind, rest, how, tmp_path):
    """Between two events an error event says it, elsewhere a reset; a Unix socket has none: half an event has to."""
    listen, tls = listening(kind, tmp_path)

    async def body():
        async with Upstream(dying([*TEXT, *([rest] if rest else [])], how)) as upstream:
            async with gateway(yaml_for(upstream).replace("127.0.0.1:0", listen)) as process:
                for _ in range(3):
                    body, reset = await seen(process.doors[0].shown, tls)
                    assert body.startswith(WHOLE + rest)
                    assert len(errors_of(body.removesuffix(rest))) == (not rest)
                    assert b"[DONE]" not in body
                    assert reset == (bool(rest) and kind != "unix")
                await until(lambda: not process.service.connections, "the connections to close")

    run(body())


def test_UPD_02_http_1_0_over_tls_gets_what_was_sent_before_the_cut(tmp_path):
    """The head and the first bytes leave in the very moment in which the answer turns out to be cut."""
    listen, tls = listening("tls", tmp_path)
    reply = "{cases.policies:InPieces: {kind: json, then: fails}}"

    async def body():
        async with Upstream(b"") as upstream:
            yaml = yaml_for(upstream, plugins=f"[{reply}]").replace("127.0.0.1:0", listen)
            async with gateway(yaml) as process:
                assert await seen(process.doors[0].shown, tls) == (b'{"choices":[', True)

    run(body())


def test_UPD_02_whole_answers_are_no_cuts(tmp_path):
    """A TLS client of HTTP/1.0 sees the proper end of what is whole."""
    listen, tls = listening("tls", tmp_path)
    reply = "{cases.policies:InPieces: {kind: json, then: ends}}"

    async def body():
        async with Upstream(b"") as upstream:
            yaml = yaml_for(upstream, plugins=f"[{reply}]").replace("127.0.0.1:0", listen)
            async with gateway(yaml) as process:
                assert await seen(process.doors[0].shown, tls) == (b'{"choices":[', False)

    run(body())
