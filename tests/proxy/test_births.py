"""Calls that refer to a stored response go to the worker that made it, or are told why not."""

from __future__ import annotations

import json
import os

import pytest
from fakes import (
    Connection,
    RawClient,
    Request,
    Upstream,
    chunked,
    event,
    gateway,
    json_answer,
    run,
    sending,
    sse_answer,
    sse_head,
    yaml_for,
)
from tailrace.proxy.births import SIZE, Births


class Named:
    def __init__(self, name: str) -> None:
        self.name = name


def test_another_process_finds_what_one_remembered() -> None:
    fd = os.memfd_create("births")
    os.ftruncate(fd, SIZE)
    workers = [Named("http://a:1"), Named("http://b:1")]
    mine, theirs = Births(fd), Births(fd)
    for number in range(500):
        mine.remember(f"resp_{number}", workers[number % 2], f"m{number % 3}")  # type: ignore[arg-type]
    found = [theirs.find(f"resp_{number}", workers) for number in range(500)]  # type: ignore[type-var]
    assert sum(worker is workers[number % 2] for number, worker in enumerate(found)) >= 495
    models = [Named(f"m{number}") for number in range(3)]
    assert [theirs.model(f"resp_{number}", models) for number in range(5)] == [*models, *models[:2]]  # type: ignore[arg-type]
    assert theirs.model("resp_1", models[:1]) is None  # type: ignore[arg-type]
    assert theirs.model("resp_unheard_of", models) is None  # type: ignore[arg-type]
    assert theirs.find("resp_unheard_of", workers) is None  # type: ignore[type-var]
    assert theirs.find("resp_1", workers[:1]) is None  # type: ignore[type-var]
    os.close(fd)


def test_follow_up_calls_reach_the_worker_that_made_the_response() -> None:
    def worker(name: str) -> bytes:
        return json_answer({"id": f"resp_{name}", "output": [], "model": "m"})

    async def main() -> None:
        async with Upstream(worker("a")) as a, Upstream(worker("b")) as b:
            yaml = f'{{role: gateway, listen: ["127.0.0.1:0"], models: {{m: {{workers: ["{a.url}", "{b.url}"]}}}}}}'
            async with gateway(yaml) as process, RawClient(process.doors[0].shown) as client:
                made = {}
                for _ in range(40):
                    got = await client.post("/v1/responses", {"model": "m", "input": "x"})
                    made[json.loads(got.body)["id"]] = True
                assert set(made) == {"resp_a", "resp_b"}
                before = len(a.requests), len(b.requests)
                for _ in range(5):
                    follow = {"model": "m", "input": "y", "previous_response_id": "resp_a"}
                    assert (await client.post("/v1/responses", follow)).status == 200
                    assert (await client.get("/v1/responses/resp_b")).status == 200
                    assert (await client.post("/v1/responses/resp_b/cancel", {})).status == 200
                assert (len(a.requests) - before[0], len(b.requests) - before[1]) == (5, 10)
                assert b.requests[-2].head.startswith(b"GET /v1/responses/resp_b HTTP/1.1\r\n")
                lost = await client.get("/v1/responses/resp_c")
                assert lost.status == 404
                assert json.loads(lost.body)["error"]["code"] == "response_not_found"
                assert json.loads(lost.body)["error"]["param"] == "response_id"
                lost = await client.post("/v1/responses", follow | {"previous_response_id": "resp_c"})
                assert (lost.status, json.loads(lost.body)["error"]["param"]) == (404, "previous_response_id")

    run(main())


def test_the_id_is_read_from_a_stream_too() -> None:
    created = event({"type": "response.created", "response": {"id": "resp_s", "output": []}}, "response.created")
    delta = event({"type": "response.output_text.delta", "delta": "x"}, "response.output_text.delta")
    done = event({"type": "response.completed", "response": {"id": "resp_s"}}, "response.completed")

    async def main() -> None:
        async with Upstream(sse_answer([created, delta, done])) as a, Upstream(json_answer({"output": []})) as b:
            yaml = f"""
role: gateway
listen: ["127.0.0.1:0"]
pools: {{a: {{workers: ["{a.url}"]}}, b: {{workers: ["{b.url}"]}}}}
models: {{m: {{pool: a}}, other: {{pool: b}}}}
"""
            async with gateway(yaml) as process, RawClient(process.doors[0].shown) as client:
                await client.post("/v1/responses", {"model": "m", "stream": True, "input": ""})
                await client.post("/v1/responses", {"model": "other", "previous_response_id": "resp_s", "input": ""})
                assert len(a.requests) == 2
                assert not b.requests

    run(main())


ID = "resp_0123456789abcdef"
BORN = event({"type": "response.created", "response": {"id": ID, "output": []}}, "response.created")
ENDED = [
    event({"type": "response.output_text.delta", "delta": "x"}, "response.output_text.delta"),
    event({"type": "response.completed", "response": {"id": ID}}, "response.completed"),
]
AT = BORN.index(ID.encode()) + 8
HEAD = sse_head()
UNTIL_CLOSE = HEAD.replace(b"transfer-encoding: chunked", b"connection: close")
PLAIN = json_answer({"id": ID, "output": []})
CODED = PLAIN[: PLAIN.index(b"content-length")] + b"transfer-encoding: chunked\r\n\r\n"
CUT = PLAIN.index(ID.encode()) + 8
BODY = PLAIN.index(b"{")
DELTA, LAST = chunked(ENDED[0]), chunked(ENDED[1]) + chunked(b"")
# The reads that an answer comes in. The last event holds the id again, but is not waited for.
READS = {
    "two chunks in one read": [HEAD + chunked(BORN[:AT]) + chunked(BORN[AT:]) + DELTA, LAST],
    "two chunks in two reads": [HEAD + chunked(BORN[:AT]), chunked(BORN[AT:]) + DELTA, LAST],
    "one chunk in two reads": [HEAD + chunked(BORN)[: AT + 4], chunked(BORN)[AT + 4 :] + DELTA, LAST],
    "one byte a chunk": [HEAD + b"".join([chunked(bytes([byte])) for byte in BORN]) + DELTA, LAST],
    "a stream until the close": [UNTIL_CLOSE + BORN[:AT], BORN[AT:] + ENDED[0], ENDED[1]],
    "a plain answer": [PLAIN[:CUT], PLAIN[CUT:]],
    "a plain answer in chunks": [CODED + chunked(PLAIN[BODY:CUT]), chunked(PLAIN[CUT:]), chunked(b"")],
}


@pytest.mark.parametrize("reads", READS.values(), ids=READS)
def test_an_id_may_be_cut_anywhere(reads: list[bytes]) -> None:
    async def script(conn: Connection, request: Request) -> None:
        for read in reads:
            await sending(read, 0.01)(conn, request)
        if reads[0].startswith(UNTIL_CLOSE):
            conn.fin()

    async def main() -> None:
        async with Upstream(script, PLAIN) as upstream, gateway(yaml_for(upstream)) as process:
            async with RawClient(process.doors[0].shown) as client:
                asked = {"model": "m", "input": "x", "stream": b"event-stream" in reads[0]}
                assert (await client.post("/v1/responses", asked)).status == 200
                assert (await client.get(f"/v1/responses/{ID}")).status == 200
                assert len(upstream.requests) == 2

    run(main())
