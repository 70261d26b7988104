"""A repeated head is recognised by its bytes, and only then."""

from __future__ import annotations

import asyncio
import json

import pytest
from fakes import RawClient, Upstream, gateway, json_answer, run, yaml_for
from tailrace.proxy.repeat import Repeat

HEAD = (
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\nX-A: b\r\n"
    b"Content-Type: application/json\r\n\r\n"
)


def request(body: bytes, head: bytes = HEAD) -> bytes:
    return head % len(body) + body


def test_the_same_head_with_another_length_gives_the_body() -> None:
    repeat = Repeat.of(request(b"12345"))
    assert repeat is not None
    for size in (0, 1, 9, 10, 1000):
        assert repeat.body_of(request(b"x" * size)) == b"x" * size


@pytest.mark.parametrize(
    "data",
    [
        request(b"12345")[:-1],
        request(b"12345") + b"G",
        request(b"12345").replace(b"X-A: b", b"X-A: c"),
        request(b"12345").replace(b"POST /v1/chat", b"POST /v1/Chat"),
        request(b"12345").replace(b"Content-Length: 5", b"Content-Length: +5"),
        request(b"12345").replace(b"Content-Length: 5", b"Content-Length: 5 "),
        request(b"12345").replace(b"Content-Length: 5", b"Content-Length: "),
        request(b"12345").replace(b"Content-Length: 5", b"Content-Length: 05"),
        request(b"12345").replace(b"Content-Length: 5", b"Content-Length: 5\r\nTransfer-Encoding: chunked"),
        request(b"12345").replace(b"Content-Length: 5", b"Content-Length: 0000000000000005"),
        b"",
    ],
)
def test_anything_else_is_for_the_parser(data: bytes) -> None:
    repeat = Repeat.of(request(b"12345"))
    assert repeat is not None
    assert repeat.body_of(data) is None


@pytest.mark.parametrize("size", [1, 12345])
def test_a_request_that_is_cut_is_for_the_parser(size: int) -> None:
    """Wherever a read ends, also where nothing follows the name of the length."""
    whole = request(b"x" * size)
    repeat = Repeat.of(whole)
    assert repeat is not None
    for end in range(len(whole)):
        assert repeat.body_of(whole[:end]) is None
        assert Repeat.of(whole[:end]) is None


def test_a_repeated_head_may_come_in_any_two_reads() -> None:
    async def main() -> None:
        async with Upstream(json_answer({"choices": []})) as upstream, gateway(yaml_for(upstream)) as process:
            async with RawClient(process.doors[0].shown) as client:
                whole = request(b'{"model":"m"}')
                for cut in (0, 0, *range(1, len(whole))):
                    await client.send(whole[:cut])
                    if cut:
                        (connection,) = process.service.connections
                        while not (connection._head_size or connection._reading):
                            await asyncio.sleep(0)
                    await client.send(whole[cut:])
                    assert (await client.read_answer()).status == 200
                assert {each.body for each in upstream.requests} == {b'{"model":"m"}'}

    run(main())


@pytest.mark.parametrize(
    "head",
    [
        b"GET / HTTP/1.1\r\nHost: h\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\nx",
        b"POST / HTTP/1.1\r\nContent-Length: 1\r\n\r\nxPOST",
        b"POST / HTTP/1.1\r\nContent-Length: 01\r\n\r\nx",
        b"POST / HTTP/1.1\r\nX: " + b"y" * 5000 + b"\r\nContent-Length: 1\r\n\r\nx",
    ],
)
def test_heads_that_cannot_be_repeated(head: bytes) -> None:
    assert Repeat.of(head) is None


def test_a_connection_serves_repeated_and_changed_heads_alike() -> None:
    """Each request, whichever way it was read, reaches the worker with its own body and headers."""

    async def main() -> None:
        async with Upstream(json_answer({"choices": []})) as upstream, gateway(yaml_for(upstream)) as process:
            async with RawClient(process.doors[0].shown) as client:
                for number in range(30):
                    headers = {"x-turn": "even" if number // 5 % 2 else "odd"}
                    body = {"model": "m", "n": number, "pad": "p" * number * 7}
                    await client.request("POST", "/v1/chat/completions", json.dumps(body).encode(), headers)
                    assert (await client.read_answer()).status == 200
                    assert json.loads(upstream.requests[-1].body) == body
                    assert upstream.requests[-1].header("x-turn") == headers["x-turn"]
                two = request(b'{"model":"m","n":1}') + request(b'{"model":"m","n":22}')
                for _ in range(3):
                    await client.send(two)
                    assert [(await client.read_answer()).status for _ in range(2)] == [200, 200]
                assert process.service.memory.used == 0
                assert len(upstream.requests) == 36

    run(main())


def test_a_body_above_the_limit_is_refused_on_the_repeated_way_too() -> None:
    async def main() -> None:
        more = "limits: {body: 1KiB}\n"
        async with (
            Upstream(json_answer({"choices": []})) as upstream,
            gateway(yaml_for(upstream, more=more)) as process,
        ):
            async with RawClient(process.doors[0].shown) as client:
                for _ in range(3):
                    await client.send(request(b'{"model":"m"}'))
                    assert (await client.read_answer()).status == 200
                await client.send(request(b'{"model":"m","x":"' + b"y" * 2000 + b'"}'))
                assert (await client.read_answer()).status == 413

    run(main())


OTHER = HEAD.replace(b"X-A: b", b"X-A: other").replace(b"Host: h", b"Host: other")


@pytest.mark.parametrize(
    "before",
    [
        [request(b'{"model":"m"}', OTHER) + request(b'{"model":"m"}') * 2],
        [request(b'{"model":"m"}', OTHER) + request(b'{"model":"m"}'), request(b'{"model":"m"}') * 2],
    ],
    ids=["in one read", "in two"],
)
def test_no_head_is_taken_for_another(before: list[bytes]) -> None:
    """Whatever came before, and however it was cut, a request is served with its own head."""

    async def main() -> None:
        async with Upstream(json_answer({"choices": []})) as upstream, gateway(yaml_for(upstream)) as process:
            async with RawClient(process.doors[0].shown) as client:
                for data in before:
                    await client.send(data)
                    for _ in range(data.count(b"HTTP/1.1")):
                        assert (await client.read_answer()).status == 200
                for _ in range(3):
                    await client.send(request(b'{"model":"m"}', OTHER))
                    assert (await client.read_answer()).status == 200
                    assert upstream.requests[-1].header("x-a") == "other"

    run(main())


def test_what_looks_like_a_request_inside_a_head_is_none() -> None:
    """A read that begins in the middle of a head is no request, even if its bytes are those of one."""

    async def main() -> None:
        async with Upstream(json_answer({"choices": []})) as upstream, gateway(yaml_for(upstream)) as process:
            async with RawClient(process.doors[0].shown) as client:
                good = request(b'{"model":"m"}')
                for _ in range(3):
                    await client.send(good)
                    assert (await client.read_answer()).status == 200
                await client.send(good + b"GET /v1/models HTTP/1.1\r\nX-Hidden: ")
                assert (await client.read_answer()).status == 200
                await client.send(good)
                assert (await client.read_answer()).json()["object"] == "list"
                assert len(upstream.requests) == 4

    run(main())


def test_what_looks_like_a_head_inside_a_body_is_none() -> None:
    async def main() -> None:
        async with Upstream(json_answer({"choices": []})) as upstream, gateway(yaml_for(upstream)) as process:
            async with RawClient(process.doors[0].shown) as client:
                await client.send(request(b'{"model":"m"}'))
                assert (await client.read_answer()).status == 200
                # A form's bytes are free: here they spell a request.
                begins = b'--b\r\nContent-Disposition: form-data; name="file"; filename=a\r\n\r\n'
                ends = b'\r\n--b\r\nContent-Disposition: form-data; name="model"\r\n\r\nm\r\n--b--\r\n'
                form = HEAD.replace(b"application/json", b"multipart/form-data; boundary=b")
                form = form.replace(b"chat/completions", b"audio/transcriptions")
                second = request(begins + ends, form)
                spelled = OTHER % len(ends + second)
                await client.send(second)
                assert (await client.read_answer()).status == 502
                await client.send(form % len(begins + spelled + ends) + begins)
                while not process.service.active:
                    await asyncio.sleep(0.005)
                await client.send(spelled + ends + second)
                assert [(await client.read_answer()).status for _ in "12"] == [502, 502]
                for _ in range(3):
                    await client.send(request(b'{"model":"m"}', OTHER))
                    assert (await client.read_answer()).status == 200
                    assert upstream.requests[-1].header("x-a") == "other"

    run(main())
