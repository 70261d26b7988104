"""The testing harness: the scripted worker and the raw client."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import orjson
import pytest
from fakes import (
    Connection,
    RawClient,
    Request,
    Upstream,
    chat_answer,
    chunked,
    gateway,
    json_answer,
    run,
    sending,
    sse_answer,
    sse_head,
    stream_of,
    yaml_for,
)
from tailrace.proxy.config import ConfigError, setting
from tailrace.proxy.fault import Reject
from tailrace.proxy.plugin import Plugin
from tailrace.proxy.testing import cut, entry_of, plugin_bench

CHAT = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


def test_a_unary_answer_crosses_a_real_gateway():
    async def body():
        async with (
            Upstream(json_answer(chat_answer("hello"))) as upstream,
            gateway(yaml_for(upstream)) as process,
            RawClient(process.doors[0].shown) as client,
        ):
            answer = await client.post("/v1/chat/completions", CHAT)
            assert answer.status == 200
            assert answer.json() == chat_answer("hello")
            assert upstream.requests[0].json() == CHAT
            assert upstream.requests[0].header("Host") == upstream.url.removeprefix("http://")

    run(body())


def test_a_stream_crosses_with_its_framing_shown():
    events = stream_of(["a", "b"])

    async def body():
        async with (
            Upstream(sse_answer(events)) as upstream,
            gateway(yaml_for(upstream)) as process,
            RawClient(process.doors[0].shown) as client,
        ):
            answer = await client.post("/v1/chat/completions", {**CHAT, "stream": True})
            assert answer.complete
            assert answer.body == b"".join(events)
            assert answer.raw_body.endswith(b"0\r\n\r\n")
            assert [event.raw for event in answer.events] == events
            again = await client.post("/v1/chat/completions", {**CHAT, "stream": True})
            assert again.body == answer.body

    run(body())


def test_a_script_ends_a_stream_by_fin():
    async def script(conn: Connection, request: Request) -> None:
        await conn.send(sse_head() + chunked(stream_of(["a"])[0]) + chunked(stream_of(["a"])[1]))
        conn.fin()

    async def body():
        async with (
            Upstream(script) as upstream,
            gateway(yaml_for(upstream)) as process,
            RawClient(process.doors[0].shown) as client,
        ):
            answer = await client.post("/v1/chat/completions", {**CHAT, "stream": True})
            assert not answer.complete

    run(body())


@pytest.mark.parametrize("how", ["rst", "fin", "close"])
def test_the_client_of_a_scripted_worker_sees_how_it_closes(how: str):
    async def script(conn: Connection, request: Request) -> None:
        getattr(conn, how)()

    async def body():
        async with Upstream(script) as upstream, RawClient(upstream.url) as client:
            await client.request("GET", "/")
            if how == "rst":
                with pytest.raises(ConnectionResetError):
                    await client.read_some()
            else:
                assert await client.read_some() == b""

    run(body())


@pytest.mark.parametrize("how", ["rst", "fin", "close"])
def test_the_worker_knows_when_its_peer_closed(how: str):
    closed = []

    async def script(conn: Connection, request: Request) -> None:
        await conn.wait_closed()
        closed.append(conn.closed_at)

    async def body():
        async with Upstream(script) as upstream:
            client = await RawClient.connect(upstream.url)
            await client.request("GET", "/")
            await upstream.asked()
            if how == "close":
                await client.close()
            else:
                getattr(client, how)()
            while not closed:
                await asyncio.sleep(0)
            assert upstream.closed_at == closed
            await client.close()

    run(body())


def test_each_request_meets_the_next_script_and_the_last_goes_on():
    async def body():
        one, two = json_answer({"n": 1}), json_answer({"n": 2})
        async with Upstream(one, sending(two[:7], two[7:])) as upstream, RawClient(upstream.url) as client:
            assert [(await client.get("/")).json()["n"] for _ in range(3)] == [1, 2, 2]

    run(body())


def test_an_error_in_a_script_fails_the_test():
    async def script(conn: Connection, request: Request) -> None:
        raise ValueError("wrong script")

    async def body():
        async with Upstream(script) as upstream, RawClient(upstream.url) as client:
            await client.request("GET", "/")
            assert await client.read_until_close() == b""

    with pytest.raises(ValueError, match="wrong script"):
        run(body())


def test_a_worker_refuses_and_listens_again():
    async def body():
        async with Upstream(json_answer({})) as upstream:
            upstream.refuse()
            with pytest.raises(ConnectionRefusedError):
                await RawClient.connect(upstream.url)
            await upstream.listen_again()
            async with RawClient(upstream.url) as client:
                assert (await client.get("/")).status == 200

    run(body())


def test_a_unix_socket(tmp_path):
    async def body():
        async with (
            Upstream(json_answer({}), unix=str(tmp_path / "w")) as upstream,
            RawClient(upstream.url) as client,
        ):
            assert (await client.get("/")).json() == {}

    run(body())


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    word: str = setting(help="what is looked for")


class Shout:
    """Upper case for whole events."""

    def __init__(self, word: bytes) -> None:
        self.word = word

    def feed(self, event):
        return (type(event)(event.raw.replace(self.word, self.word.upper())),)

    def finish(self, outcome):
        return ()

    def body(self, data):
        return data.replace(self.word, self.word.upper())


class Loud(Plugin[Config]):
    Config = Config

    async def on_request(self, call):
        if call.body is None:
            return
        if call.body.get("user") == "nobody":
            raise Reject(403, "nobody", "Nobody may ask.")
        call.edit("seen", b"true")

    def on_stream(self, call, head):
        return Shout(self.config.word.encode())


@pytest.mark.parametrize("feed", ["whole", "split", "joined", "bytes", 1, 40, 5000])
def test_a_plugin_on_the_bench_meets_every_feed(feed):
    async def body():
        async with plugin_bench(Loud, {"word": "hello"}, answer=stream_of(["hello", "you"]), feed=feed) as bench:
            assert isinstance(bench.plugin, Loud)
            exchange = await bench.post("/v1/chat/completions", {**CHAT, "stream": True})
            assert exchange.complete
            assert [event.raw for event in exchange.events] == stream_of(["HELLO", "you"])
            assert exchange.seen.json()["seen"] is True
            ((call, outcome),) = bench.calls
            assert (call.model, outcome.status, outcome.ending) == ("m", 200, "completed")

    run(body())


@pytest.mark.parametrize("feed", ["whole", "split", "joined", "bytes", 7])
def test_a_unary_answer_on_the_bench(feed):
    async def body():
        async with plugin_bench(Loud, {"word": "hello"}, answer=chat_answer("hello"), feed=feed) as bench:
            exchange = await bench.post("/v1/chat/completions", CHAT)
            assert exchange.json() == chat_answer("HELLO")
            refused = await bench.post("/v1/chat/completions", {**CHAT, "user": "nobody"})
            assert (refused.status, refused.seen) == (403, None)
            assert [outcome.ending for _, outcome in bench.calls] == ["completed", "refused"]
            assert (await bench.get("/v1/models")).json()["data"][0]["id"] == "m"

    run(body())


def test_terms_and_further_plugins_on_the_bench():
    async def body():
        async with plugin_bench(
            Loud,
            {"word": "you"},
            answer=chat_answer("hello you"),
            before=[entry_of(Loud, {"word": "hello"})],
            terms={"when": {"model": ["other"]}},
            settings={"default_model": "m"},
        ) as bench:
            exchange = await bench.post("/v1/chat/completions", {"messages": []})
            assert exchange.json() == chat_answer("HELLO you")

    run(body())


def test_a_wrong_configuration_on_the_bench():
    async def body():
        async with plugin_bench(Loud, {"wrd": "x"}, answer=b""):
            raise AssertionError

    with pytest.raises(ConfigError, match="did you mean"):
        run(body())


def test_how_bytes_are_cut():
    events = [b"abcd", b"ef"]
    assert list(cut(events, "whole")) == events
    assert list(cut(events, "joined")) == [b"abcdef"]
    assert list(cut(events, "split")) == [b"ab", b"cd", b"e", b"f"]
    assert list(cut(events, "bytes")) == [b"a", b"b", b"c", b"d", b"e", b"f"]
    assert list(cut(events, 1)) == [b"a", b"bcdef"]


def test_byte_by_byte_is_what_the_gateway_reads():
    reads = []

    async def body():
        async with plugin_bench(Loud, {"word": "x"}, answer=stream_of(["hello"]), feed="bytes") as bench:
            upstream = RawClient(bench.upstream.url)
            async with upstream as client:
                await client.request("POST", "/", orjson.dumps({}))
                await client.read_head()
                while (chunk := await client.read_chunk()) and chunk[0]:
                    reads.append(chunk[0])

    run(body())
    assert {len(chunk) for chunk in reads} == {1}
