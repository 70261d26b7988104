"""HTTP as uvicorn speaks it: connections kept, pipelined, refused and closed."""

import asyncio
import json
import tempfile
from pathlib import Path

import pytest
from fakes import run, until
from sim_client import CHAT, HELLO, connect, fetch, get, head_of, read_answer, running, turns
from tailrace.worker.sim import Adapter, ManualClock

BODY = json.dumps(HELLO | {"max_tokens": 3}).encode()
STREAM = json.dumps(HELLO | {"max_tokens": 3, "stream": True}).encode()


async def one_answer(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.split(b"content-length: ")[1].split(b"\r\n")[0])
    return head + await reader.readexactly(length)


def test_connection_serves_many_requests_and_closes_when_idle() -> None:
    async def ask() -> None:
        clock = ManualClock()
        async with running(clock, keep_alive_s=5) as sim:
            reader, writer = await connect(sim)
            for _ in range(3):
                writer.write(head_of("POST", CHAT, BODY, {}) + BODY)
                await until(lambda: sim.scheduler.running == 1)
                clock.advance(0.1)
                assert b"connection: close" not in await one_answer(reader)
                clock.advance(4.8)
            writer.write(head_of("POST", CHAT, STREAM, {}) + STREAM)
            await until(lambda: sim.scheduler.running == 1)
            clock.advance(20)
            assert read_answer(await reader.readuntil(b"\r\n0\r\n\r\n")).ended
            clock.advance(5.1)
            assert await reader.read() == b""
            writer.close()

    run(ask())


def test_pipelined_requests_are_answered_in_order() -> None:
    async def ask() -> None:
        async with running(itl_ms=1) as sim:
            reader, writer = await connect(sim)
            health = head_of("GET", "/version", b"", {})
            writer.write(
                head_of("POST", CHAT, BODY, {}) + BODY + health * 2000 + head_of("POST", CHAT, BODY, {}) + BODY
            )
            assert b"chat.completion" in await one_answer(reader)
            for _ in range(2000):
                assert (await one_answer(reader)).endswith(b'{"version":"0.32.0"}')
            assert b"chat.completion" in await one_answer(reader)
            writer.close()

    run(ask())


def test_request_may_come_byte_by_byte_and_chunked() -> None:
    async def ask() -> None:
        async with running() as sim:
            reader, writer = await connect(sim)
            for at in range(len(raw := head_of("POST", CHAT, BODY, {}) + BODY)):
                writer.write(raw[at : at + 1])
                await asyncio.sleep(0)
            whole = await one_answer(reader)
            chunked = b"POST " + CHAT.encode() + b"?x=1 HTTP/1.1\r\nhost: sim\r\ncontent-type: application/json\r\n"
            writer.write(chunked + b"transfer-encoding: chunked\r\n\r\n5\r\n" + BODY[:5] + b"\r\n")
            writer.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY) - 5, BODY[5:]))
            again = await one_answer(reader)
            assert read_answer(whole).json["choices"] == read_answer(again).json["choices"]
            writer.close()

    run(ask())


def test_expect_continue_is_met() -> None:
    async def ask() -> None:
        async with running() as sim:
            reader, writer = await connect(sim)
            writer.write(head_of("POST", CHAT, BODY, {"expect": "100-continue"}))
            assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            writer.write(BODY)
            assert (await one_answer(reader)).startswith(b"HTTP/1.1 200 OK")
            writer.close()

    run(ask())


@pytest.mark.parametrize("nonsense", [b"HELO sim\r\n\r\n", b"\x16\x03\x01\x02\x00", b"GET / HTTP/9.9\r\n\r\n"])
def test_what_is_not_http_is_told_so(nonsense: bytes) -> None:
    async def ask() -> None:
        async with running() as sim:
            reader, writer = await connect(sim)
            writer.write(nonsense)
            answer = await reader.read()
            assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n")
            assert answer.endswith(b"Invalid HTTP request received.")
            writer.close()
            assert (await get(sim, "/health")).status == 200

    run(ask())


def test_old_http_closes_the_connection() -> None:
    async def ask() -> None:
        async with running() as sim:
            reader, writer = await connect(sim)
            writer.write(b"GET /version HTTP/1.0\r\n\r\n")
            assert b"connection: close\r\n" in await reader.read()
            writer.close()

    run(ask())


def test_slow_reader_gets_everything() -> None:
    async def ask() -> None:
        async with running(answer_tokens=0) as sim:
            reader, writer = await connect(sim)
            body = json.dumps(HELLO | {"max_tokens": 2000, "stream": True}).encode()
            writer.write(head_of("POST", CHAT, body, {"connection": "close"}) + body)
            await until(lambda: sim.metrics.generation_tokens == 2000)
            await turns()
            answer = read_answer(await reader.read())
            assert answer.ended
            assert len(answer.chunks) == 1 + 2000 + 1
            writer.close()

    run(ask())


def test_unix_socket_beside_or_instead_of_tcp() -> None:
    async def ask() -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "sim.sock"
            async with running(port=None, uds=str(path)) as sim:
                assert sim.port is None
                reader, writer = await asyncio.open_unix_connection(path)
                writer.write(head_of("GET", "/sim/control", b"", {"connection": "close"}))
                assert b'"state":"serving"' in await reader.read()
                writer.close()
            assert not path.exists()
            # A dead process's socket makes way; a file does not.
            async with running(port=0, uds=str(path)) as sim:
                assert sim.port
            path.write_text("not a socket")
            with pytest.raises(OSError, match="in use"):
                async with running(uds=str(path)):
                    pass
            assert path.read_text() == "not a socket"

    run(ask())


def test_requests_can_be_looked_at_afterwards() -> None:
    async def ask() -> None:
        async with running(keep_requests=2) as sim:
            for number in range(3):
                await fetch(sim, "/v1/nothing", {"number": number}, x_mark=str(number))
            assert [json.loads(request.body)["number"] for request in sim.received] == [1, 2]
            assert [request.headers[b"x-mark"] for request in sim.received] == [b"1", b"2"]

    run(ask())


def test_models_name_the_adapters_and_their_parent() -> None:
    async def ask() -> None:
        async with running(
            served_model_names=("tiny", "small"), lora_modules=(Adapter(name="law", path="/law"),)
        ) as sim:
            cards = (await get(sim, "/v1/models")).json["data"]
            assert [(card["id"], card["parent"], card["root"]) for card in cards] == [
                ("tiny", None, "./tiny"),
                ("small", None, "./tiny"),
                ("law", "tiny", "/law"),
            ]
            for name, shown in (("tiny", "tiny"), ("small", "tiny"), ("law", "law")):
                answer = await fetch(sim, CHAT, HELLO | {"model": name, "max_tokens": 1})
                assert answer.json["model"] == shown
            refused = await fetch(sim, CHAT, HELLO | {"model": "nope"})
            assert "Valid aliases: tiny, small." in refused.json["error"]["message"]

    run(ask())
