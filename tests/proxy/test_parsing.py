"""A head that is whole but refused is a call: plugins see its answer and hear of its end."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass

import pytest
from cases.scene import Scene, scene
from fakes import GOOD, PATH, Answer, RawClient, Upstream, gateway, run, yaml_for
from scrape import Scrape
from tailrace.proxy.call import Call
from tailrace.proxy.fault import Reject
from tailrace.proxy.outcome import Ending
from tailrace.proxy.plugin import Plugin

ORIGIN = b"origin: https://app.example\r\n"
PLUGINS = "[{cors: {origins: ['https://app.example']}}, cases.witness:Witness]"
LIMITS = "limits: {body: 4096, head: 8192, target: 256}\n"
LARGE = b"content-type: application/json\r\ncontent-length: 5000\r\n"


@dataclass(frozen=True)
class Nothing:
    pass


class Doorkeeper(Plugin[Nothing]):
    """Lets nobody in."""

    Config = Nothing

    def on_open(self, call: Call) -> None:
        raise Reject(401, "who", "Who are you?")


def head(line: str, *lines: bytes, host: bytes = b"host: a\r\n") -> bytes:
    return line.encode() + b" HTTP/1.1\r\n" + host + ORIGIN + b"".join(lines) + b"\r\n"


async def answer(s: Scene, data: bytes) -> Answer:
    """The one answer to what is sent, behind which the connection ends."""
    async with RawClient(s.url) as client:
        await client.send(data)
        got = await client.read_answer()
        assert got.header("connection") == "close"
        assert await client.read_until_close() == b""
        return got


POST = f"POST {PATH}"
REFUSED = {
    "too large": (head(POST, LARGE), 413, "chat"),
    "too large, asked first": (head(POST, LARGE, b"expect: 100-continue\r\n"), 413, "chat"),
    "too large for the models": (head("GET /v1/models", LARGE), 413, "models"),
    "odd length": (head(POST, b"content-length: 007\r\n"), 400, "chat"),
    "two slashes": (head("GET //v1/models"), 400, "unmatched"),
    "long target": (head("GET /v1/models?" + "x" * 300), 414, "unmatched"),
    "no host": (head("GET /v1/models", host=b""), 400, "unmatched"),
    "two hosts": (head("GET /v1/models", b"host: b\r\n"), 400, "unmatched"),
    "expectation": (head(POST, b"expect: more\r\n"), 417, "unmatched"),
    "twice described": (head(POST, b"content-type: a\r\ncontent-type: b\r\n"), 400, "unmatched"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_whole_head_that_is_refused_is_a_call(name: str) -> None:
    data, status, route = REFUSED[name]

    async def main() -> None:
        async with scene(GOOD, plugins=PLUGINS, more=LIMITS) as s:
            got = await answer(s, data)
            assert (got.status, got.header("access-control-allow-origin")) == (status, "https://app.example")
            outcome = await s.outcome()
            assert (outcome.ending, outcome.status) == (Ending.REFUSED, status)
            assert s.witness.heads == [(got.header("x-request-id"), status)]
            assert s.witness.calls[0].route.name == route
            assert Scrape(s.process).value("requests_total", route=route, code=f"{status}") == 1
            assert s.upstream.requests == []

    run(main())


NO_HEAD = {
    "no HTTP": (head("GET /v1/models", b"x y: z\r\n"), 400),
    "a large head": (head("GET /v1/models", b"x: " + b"x" * 9000 + b"\r\n"), 431),
    "many headers": (head("GET /v1/models", b"x: y\r\n" * 200), 431),
    "many headers behind a long target": (head("GET /v1/models?" + "x" * 300, b"x: y\r\n" * 200), 414),
}


@pytest.mark.parametrize("name", NO_HEAD)
def test_what_is_no_head_or_too_large_a_one_is_no_call(name: str) -> None:
    data, status = NO_HEAD[name]

    async def main() -> None:
        async with scene(GOOD, plugins=PLUGINS, more=LIMITS) as s:
            got = await answer(s, data)
            assert (got.status, got.header("access-control-allow-origin")) == (status, None)
            assert Scrape(s.process).value("requests_total", route="unparsed", code=f"{status}") == 1
            assert s.witness.outcomes == []

    run(main())


def test_a_body_is_refused_alike_by_its_length_and_by_its_bytes() -> None:
    async def main() -> None:
        async with scene(GOOD, plugins=PLUGINS, more=LIMITS) as s:
            chunks = b"transfer-encoding: chunked\r\n"
            by_length = await answer(s, head(POST, LARGE))
            by_bytes = await answer(s, head(POST, chunks) + b"1388\r\n" + b"x" * 5000 + b"\r\n")
            ours = {"x-request-id"}
            first, second = (
                [pair for pair in got.head.headers if pair[0] not in ours] for got in (by_length, by_bytes)
            )
            assert (by_length.status, first, by_length.body) == (by_bytes.status, second, by_bytes.body)

    run(main())


def test_whoever_may_not_come_in_hears_that_first() -> None:
    async def main() -> None:
        plugins = f"[{__name__}:Doorkeeper, cases.witness:Witness]"
        async with scene(GOOD, plugins=plugins, more=LIMITS) as s:
            assert (await answer(s, head(POST, LARGE))).status == 401

    run(main())


def test_the_client_of_a_refused_head_is_whom_the_proxy_names() -> None:
    async def main() -> None:
        async with Upstream(GOOD) as upstream:
            listen = '{address: "127.0.0.1:0", trusted_proxies: [127.0.0.0/8]}'
            yaml = yaml_for(upstream, plugins="[cases.witness:Witness]", more=LIMITS).replace("127.0.0.1:0", listen)
            async with gateway(yaml) as process:
                s = Scene(process, [upstream], AsyncExitStack())
                for line, *lines in ((POST, LARGE), ("GET //",)):
                    await answer(s, head(line, *lines, b"x-forwarded-for: 9.8.7.6\r\n"))
                assert [call.peer.address for call in s.witness.calls] == ["9.8.7.6"] * 2

    run(main())


def test_the_shape_of_a_refusal_follows_path_and_headers() -> None:
    version = b"anthropic-version: 2023-06-01\r\n"

    async def main() -> None:
        async with scene(GOOD, plugins=PLUGINS, more=LIMITS) as s:
            for data in (
                head("POST /v1/messages", LARGE),
                head("POST /v1/messages", host=b""),
                head("GET //", version),
            ):
                got = await answer(s, data)
                assert got.json()["type"] == "error"
                assert got.header("request-id") == got.header("x-request-id")
            assert (await answer(s, head("GET //"))).json()["error"]["type"] == "invalid_request_error"

    run(main())


@pytest.mark.parametrize("name", ["a%5Cb", "a%20%2Fb", "a%3Fx=1%23", "%C3%BC"])
def test_a_models_odd_name_goes_to_no_worker(name: str) -> None:
    async def main() -> None:
        async with Upstream(GOOD) as upstream:
            pool = f"pools: {{all: {{workers: ['{upstream.url}']}}}}\n"
            routes = "routes: [{path: '/v1/*', methods: [POST], pool: all}]\n"
            async with gateway(yaml_for(upstream, more=pool + routes)) as process:
                async with RawClient(process.doors[0].shown) as client:
                    assert (await client.post(f"/v1/models/{name}", {})).status == 400
                async with RawClient(process.doors[0].shown) as client:
                    assert (await client.post("/v1/models/a", {})).status == 200
            assert len(upstream.requests) == 1

    run(main())
