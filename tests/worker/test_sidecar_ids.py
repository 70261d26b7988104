"""One request id from the gateway through the sidecar to the engine, and back to the client once."""

from __future__ import annotations

import pytest
from fakes import Connection, RawClient, Request, Script, Upstream, chat_answer, gateway, json_answer, run, yaml_for
from served import engine
from sidecars import CHAT, HELLO, KEY, found, hop, sidecar, url_of

IDS = ("x-request-id", "x-upstream-request-id")
ASKED = HELLO | {"model": "m"}
KEYED = f"hop_key: {KEY}\n"


def naming(name: str | None) -> Script:
    """An engine that gives an answer this id; the one it was asked with where that is empty; none where it is None."""

    async def script(conn: Connection, request: Request) -> None:
        given = request.header("x-request-id") if name == "" else name
        lines = f"X-Request-Id: {given}\r\n".encode() if given is not None else b""
        await conn.send(json_answer(chat_answer("hi"), headers=lines))

    return script


@pytest.mark.parametrize("name", [None, "", "its-own"])
@pytest.mark.parametrize("key", ["", KEYED])
def test_one_id_leads_from_the_client_to_the_engine(name: str | None, key: str) -> None:
    async def body() -> None:
        async with Upstream(engine(naming(name))) as upstream, sidecar(found(upstream.url), key) as worker:
            async with gateway(yaml_for(url_of(worker), more=key)) as process:
                async with RawClient(process.doors[0].shown) as client:
                    for _ in range(2):
                        got = await client.post(CHAT, ASKED, {"x-request-id": "req_0123456789abcdef"})
                        assert got.status == 200
                        asked = [request for request in upstream.requests if request.method == "POST"][-1]
                        mine = got.header("x-request-id")
                        assert str(mine).startswith("req_")
                        assert mine != "req_0123456789abcdef"
                        assert asked.header("x-request-id") == mine
                        shown = [value for each in IDS for value in got.head.all(each)]
                        assert shown == ([mine, "its-own"] if name else [mine])

    run(body())


@pytest.mark.parametrize(
    "given",
    ["mine", "req_", "req_" + "0" * 200, "req_0123456789abcdeg", "req_0123456789abcdef!", "req_0123456789ab-2-2-2-2"],
)
def test_what_is_no_gateways_id_is_not_taken_over(given: str) -> None:
    async def body() -> None:
        async with Upstream(engine(naming(""))) as upstream, sidecar(found(upstream.url), KEYED) as worker:
            async with RawClient(url_of(worker)) as client:
                got = await client.post(CHAT, ASKED, hop() | {"x-request-id": given})
                assert got.status == 200
                asked = [request for request in upstream.requests if request.method == "POST"][-1]
                assert asked.header("x-request-id") == got.header("x-request-id") != given

    run(body())


def test_a_stranger_names_no_id() -> None:
    async def body() -> None:
        async with Upstream(engine(naming(""))) as upstream, sidecar(found(upstream.url), KEYED) as worker:
            async with RawClient(url_of(worker)) as client:
                got = await client.post(CHAT, ASKED, {"x-request-id": "req_0123456789abcdef"})
                assert got.status == 401
                assert got.header("x-request-id") != "req_0123456789abcdef"

    run(body())


def test_a_further_attempt_has_an_id_of_its_own_that_begins_like_the_first() -> None:
    refusal = json_answer({"error": {"message": "busy"}}, 503, b"x-tailrace-load: running=1;waiting=0;kv=0;unsent\r\n")

    async def body() -> None:
        async with Upstream(refusal) as refuses, Upstream(engine(naming(""))) as answers:
            async with sidecar(found(answers.url), KEYED) as worker:
                async with gateway(yaml_for(refuses, url_of(worker), more=KEYED)) as process:
                    async with RawClient(process.doors[0].shown) as client:
                        seen = 0
                        while not seen:
                            got = await client.post(CHAT, ASKED)
                            seen = len([request for request in refuses.requests if request.method == "POST"])
                        mine = got.header("x-request-id")
                        asked = [request for request in answers.requests if request.method == "POST"][-1]
                        assert asked.header("x-request-id") == f"{mine}-2"
                        assert got.head.all("x-upstream-request-id") == [f"{mine}-2"]

    run(body())
