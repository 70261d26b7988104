"""Model names: aliases towards workers, and the client's name in answers where asked for."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fakes import RawClient, Upstream, event, gateway, json_answer, run, sse_answer
from tailrace.proxy.rename import Rename
from tailrace.proxy.sse import Event

CHUNK = {"id": "1", "model": "llama-8b", "choices": [{"index": 0, "delta": {"content": 'say "model":"llama-8b"'}}]}


def yaml(upstream: Upstream, *, rename: bool) -> str:
    return f"""
role: gateway
listen: [127.0.0.1:0]
models:
  gpt-4o-mini: {{workers: ["{upstream.url}"], as: llama-8b, rename: {str(rename).lower()}}}
"""


def served(answer: bytes, body: dict[str, Any], *, rename: bool) -> tuple[bytes, bytes]:
    async def main() -> tuple[bytes, bytes]:
        async with Upstream(answer) as upstream, gateway(yaml(upstream, rename=rename)) as process:
            async with RawClient(process.doors[0].shown) as client:
                got = await client.post("/v1/chat/completions", body)
                return upstream.requests[0].body, got.body

    return run(main())


def test_the_worker_gets_its_own_name_and_all_else_untouched() -> None:
    saw, _ = served(json_answer({"choices": []}), {"model": "gpt-4o-mini", "x": 1.50}, rename=False)
    assert saw == json.dumps({"model": "llama-8b", "x": 1.50}, separators=(",", ":")).encode() or json.loads(saw) == {
        "model": "llama-8b",
        "x": 1.50,
    }


def test_without_rename_the_answer_is_the_workers_to_the_byte() -> None:
    chunks = [event(CHUNK), event({**CHUNK, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})]
    _, got = served(sse_answer([*chunks, event("[DONE]")]), {"model": "gpt-4o-mini", "stream": True}, rename=False)
    assert got == b"".join(chunks) + b"data: [DONE]\n\n"


def test_rename_changes_the_model_field_and_nothing_that_looks_like_it() -> None:
    chunks = [event(CHUNK), event({**CHUNK, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})]
    _, got = served(sse_answer([*chunks, event("[DONE]")]), {"model": "gpt-4o-mini", "stream": True}, rename=True)
    first = json.loads(got.split(b"\n\n")[0][6:])
    assert first == {**CHUNK, "model": "gpt-4o-mini"}


def test_rename_of_a_whole_answer() -> None:
    answer = {"model": "llama-8b", "choices": [], "metadata": {"model": "llama-8b"}}
    _, got = served(json_answer(answer), {"model": "gpt-4o-mini"}, rename=True)
    assert json.loads(got) == {**answer, "model": "gpt-4o-mini"}


@pytest.mark.parametrize(("size", "status"), [(1_400_000, 200), (2_000_000, 502)])
@pytest.mark.parametrize("first", [True, False])
def test_rename_of_a_large_answer(size: int, status: int, first: bool) -> None:
    model, much = {"model": "llama-8b"}, {"data": ["x" * size]}
    answer = model | much if first else much | model

    async def main() -> None:
        async with Upstream(json_answer(answer)) as upstream:
            async with gateway(yaml(upstream, rename=True) + "limits: {body: 1536KiB}\n") as process:
                async with RawClient(process.doors[0].shown) as client:
                    got = await client.post("/v1/embeddings", {"model": "gpt-4o-mini", "input": "x"})
                    assert got.status == status
                    assert b"llama-8b" not in got.body
                    if status == 200:
                        assert got.json() == {**answer, "model": "gpt-4o-mini"}
                    else:
                        assert "too large for its model to be renamed" in got.json()["error"]["message"]

    run(main())


@pytest.mark.parametrize("holder", ["message", "response"])
def test_rename_inside_the_objects_that_carry_a_model(holder: str) -> None:
    body = {"type": "x", holder: {"metadata": {"model": "b"}, "model": "b"}}
    (renamed,) = Rename(b'"a"').feed(Event(b"event: x\ndata: " + json.dumps(body).encode() + b"\n\n"))
    assert renamed.json() == {"type": "x", holder: {"metadata": {"model": "b"}, "model": "a"}}
    assert renamed.name == b"x"


def test_what_is_no_json_passes() -> None:
    garbage = Event(b'data: {"model":\n\n')
    assert Rename(b'"a"').feed(garbage) == (garbage,)
