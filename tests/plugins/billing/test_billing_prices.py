"""Which prices hold: by which name, from when, after a change of the file, and where there are none."""

from __future__ import annotations

import asyncio
from pathlib import Path

import orjson
import pytest
from billed import PRICES, billed, cost, last_usage, stream, token, unary
from fakes import CHAT, PATH, event, gateway, json_answer, run, sse_answer, sse_head, until, yaml_for
from tailrace.proxy.pipeline import ChainError
from tailrace.proxy.testing.answers import chunked

STREAM = {**CHAT, "stream": True}
DEARER = PRICES.replace("p1", "p2").replace("prompt: 2,", "prompt: 4,").replace("completion: 8", "completion: 16")


@pytest.mark.parametrize(
    ("entries", "prompt"),
    [
        ("[{model: m, prompt: 1}, {model: vendor/big, prompt: 2}]", 1),
        ("[{model: vendor/big, prompt: 2}]", 2),
        ("[{model: m, prompt: 1, until: 2020-01-01}, {model: vendor/big, prompt: 2}]", 2),
        ("[{model: m, prompt: 1, until: 2020-01-01}, {model: m, prompt: 3, from: 2020-01-01}]", 3),
        ("[{model: m, prompt: 0, per_request: 0.000001}]", 0),
    ],
)
def test_a_price_by_the_name_here_or_that_of_the_workers(tmp_path: Path, entries: str, prompt: int) -> None:
    async def main() -> None:
        models = "{m: {workers: [ALL], as: vendor/big}}"
        prices = f"currency: USD\nprices: {entries}\n"
        async with billed(tmp_path, unary(9, 3), models=models, prices=prices) as scene:
            assert (await scene.client.post(PATH, CHAT)).status == 200
            record = await scene.record()
            assert record.amount == (9 * prompt * 1000 if prompt else 1000)
            assert (record.currency, record.unpriced) == ("USD", False)

    run(main())


@pytest.mark.parametrize(("route", "service_class", "prompt"), [("chat", "batch", 3), ("messages", "interactive", 1)])
def test_a_class_has_its_own_price_and_is_on_record(
    tmp_path: Path, route: str, service_class: str, prompt: int
) -> None:
    async def main() -> None:
        prices = "currency: USD\nprices: [{model: m, prompt: 1}, {model: m, class: batch, prompt: 3}]\n"
        classes = f"- service_class: {{routes: {{{route}: batch}}}}\n"
        async with billed(tmp_path, unary(9, 3), prices=prices, before=classes) as scene:
            assert (await scene.client.post(PATH, CHAT)).status == 200
            record = await scene.record()
            assert (record.service_class, record.amount) == (service_class, 9 * prompt * 1000)

    run(main())


@pytest.mark.parametrize("unpriced", ["refuse", "free"])
def test_a_model_whose_price_has_ended_has_none(tmp_path: Path, unpriced: str) -> None:
    prices = "currency: EUR\nprices: [{model: m, prompt: 1, until: 2020-01-01}]\n"

    async def main() -> None:
        async with billed(tmp_path, unary(9, 3), prices=prices, more=f", unpriced: {unpriced}") as scene:
            got = await scene.client.post(PATH, CHAT)
            if unpriced == "refuse":
                assert (got.status, got.json()["error"]["code"]) == (503, "model_unpriced")
                assert (await scene.client.post("/v1/messages", {**CHAT, "max_tokens": 1})).json()["type"] == "error"
                assert scene.value("unpriced_refused_total") == 2
                assert not scene.upstream.requests
            else:
                assert got.status == 200
                record = await scene.record()
                assert (record.amount, record.unpriced, record.completion) == (0, True, 3)

    run(main())


def test_prices_that_change_in_the_middle_of_an_answer_do_not_change_it(tmp_path: Path) -> None:
    async def main() -> None:
        go = asyncio.Event()

        async def script(conn, request):
            await conn.send(sse_head())
            events = stream(8)
            for number, each in enumerate(events):
                await conn.send(chunked(each))
                if number == 4 and len(scene.upstream.requests) == 1:
                    await go.wait()
            await conn.send(chunked(b""))

        async with billed(tmp_path, script) as scene:
            await scene.client.request("POST", PATH, orjson.dumps(STREAM))
            await scene.client.read_until(b"t4 ")
            (tmp_path / "prices.yaml").write_text(DEARER)
            await until(lambda: scene.billing._list.prices.version == "p2")
            go.set()
            await scene.client.read_until(b"0\r\n\r\n")
            await scene.client.post(PATH, STREAM)
            first, second = await scene.records(2)
            assert (first.price_version, first.amount) == ("p1", cost(9, 8))
            assert (second.price_version, second.amount) == ("p2", 2 * (cost(9, 8) - 1_000_000) + 1_000_000)

    run(main())


@pytest.mark.parametrize("fault", ["nonsense", "no text", "gone", "a folder", "empty"])
def test_a_faulty_file_of_prices_changes_nothing(tmp_path: Path, fault: str) -> None:
    file = tmp_path / "prices.yaml"

    async def main() -> None:
        async with billed(tmp_path, unary(9, 3)) as scene:
            if fault in ("gone", "a folder"):
                file.unlink()
            if fault == "a folder":
                file.mkdir()
            if fault in ("nonsense", "no text", "empty"):
                content = {"nonsense": b"currency: 7\n", "no text": b"\xff\xfe\x00\x80", "empty": b""}[fault]
                file.write_bytes(content)
            await until(lambda: scene.value("prices_faulty") == 1, "nobody said so")
            assert (await scene.client.post(PATH, CHAT)).status == 200
            assert (await scene.record()).amount == cost(9, 3)
            if fault == "a folder":
                file.rmdir()
            file.write_text(DEARER)
            await until(lambda: scene.value("prices_faulty") == 0, "the good one was not taken")
            await scene.client.post(PATH, CHAT)
            assert (await scene.records(2))[1].price_version == "p2"

    run(main())


@pytest.mark.parametrize("content", [b"currency: EUR\n", b"\xff\xfe", b"currency: EUR\nprices: [{prompt: 1}]\n"])
def test_a_gateway_does_not_begin_with_faulty_prices(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "prices.yaml"
    file.write_bytes(content)

    async def main() -> None:
        yaml = yaml_for("http://127.0.0.1:1", plugins=f"- billing: {{prices: {file}}}", more=f"state: {tmp_path}\n")
        with pytest.raises(ChainError, match=r"prices\.yaml:"):
            async with gateway(yaml):
                pass

    run(main())


SAID = {"prompt_tokens": 40, "total_tokens": 40}
MESSAGE = {"input_tokens": 30, "output_tokens": 7, "cache_read_input_tokens": 10}
ROUTES = {
    "/v1/embeddings": ({"model": "m", "input": ["a"]}, {"data": [], "usage": SAID}, cost(40, 0)),
    "/v1/rerank": ({"model": "m", "query": "q", "documents": ["a"]}, {"results": [], "usage": SAID}, cost(40, 0)),
    "/v1/score": ({"model": "m", "text_1": "q", "text_2": ["a"]}, {"data": [], "usage": SAID}, cost(40, 0)),
    "/pooling": ({"model": "m", "input": "a"}, {"data": [], "usage": SAID}, cost(40, 0)),
    "/classify": ({"model": "m", "input": "a"}, {"data": [], "usage": SAID}, cost(40, 0)),
    "/v1/messages": (
        {"model": "m", "max_tokens": 9, "messages": []},
        {"type": "message", "role": "assistant", "content": [], "stop_reason": "end_turn", "usage": MESSAGE},
        cost(40, 7, 10),
    ),
    "/v1/responses": (
        {"model": "m", "input": "a"},
        {"object": "response", "output": [], "usage": {"input_tokens": 40, "output_tokens": 7}},
        cost(40, 7),
    ),
    "/v1/completions": (
        {"model": "m", "prompt": "a"},
        {"choices": [{"text": "b", "finish_reason": "stop"}], "usage": {**SAID, "completion_tokens": 7}},
        cost(40, 7),
    ),
    "/tokenize": ({"model": "m", "prompt": "a"}, {"count": 1, "tokens": [1], "max_model_len": 9}, cost(0, 0)),
    "/v1/messages/count_tokens": ({"model": "m", "messages": []}, {"input_tokens": 5}, cost(0, 0)),
}


@pytest.mark.parametrize("path", ROUTES)
def test_every_api_costs_what_it_used(tmp_path: Path, path: str) -> None:
    asked, said, amount = ROUTES[path]

    async def main() -> None:
        async with billed(tmp_path, json_answer(said)) as scene:
            got = await scene.client.post(path, asked)
            assert (got.status, got.json()) == (200, said)
            record = await scene.record()
            assert (record.amount, record.estimated, record.requests) == (amount, False, 1)

    run(main())


def test_a_transcription_costs_by_the_request(tmp_path: Path) -> None:
    form = (
        b'--x\r\ncontent-disposition: form-data; name="model"\r\n\r\nm\r\n'
        b'--x\r\ncontent-disposition: form-data; name="file"; filename="a.wav"\r\n\r\nRIFF\r\n--x--\r\n'
    )

    async def main() -> None:
        async with billed(tmp_path, json_answer({"text": "hello"})) as scene:
            headers = {"content-type": "multipart/form-data; boundary=x"}
            got = await scene.client.post("/v1/audio/transcriptions", form, headers)
            assert (got.status, got.json()) == (200, {"text": "hello"})
            record = await scene.record()
            assert (record.amount, record.model, record.route) == (cost(0, 0), "m", record.route)
            assert not record.estimated

    run(main())


def test_the_responses_api_streams_its_figures_in_its_last_event(tmp_path: Path) -> None:
    said = {"input_tokens": 40, "input_tokens_details": {"cached_tokens": 8}, "output_tokens": 7, "total_tokens": 47}
    delta = event({"type": "response.output_text.delta", "delta": "t "}, "response.output_text.delta")
    ended = {"type": "response.completed", "response": {"id": "resp_1", "model": "m", "usage": said}}
    events = [delta, delta, event(ended, "response.completed")]

    async def main() -> None:
        async with billed(tmp_path, sse_answer(events)) as scene:
            got = await scene.client.post("/v1/responses", {"model": "m", "input": "x", "stream": True})
            assert got.body == b"".join(events)
            record = await scene.record()
            assert (record.amount, record.estimated, record.cached) == (cost(40, 7, 8), False, 8)

    run(main())


def test_messages_stream_their_figures_at_both_ends(tmp_path: Path) -> None:
    start = {"type": "message_start", "message": {"id": "m", "usage": {"input_tokens": 40, "output_tokens": 0}}}
    delta = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "t"}}
    ended = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 7}}
    bodies = [start, delta, delta, ended, {"type": "message_stop"}]
    events = [event(body, str(body["type"])) for body in bodies]

    async def main() -> None:
        async with billed(tmp_path, sse_answer(events)) as scene:
            got = await scene.client.post("/v1/messages", {**STREAM, "max_tokens": 9})
            assert got.body == b"".join(events)
            record = await scene.record()
            assert (record.amount, record.estimated) == (cost(40, 7), False)

    run(main())


def test_several_prompts_are_added_up_while_they_run(tmp_path: Path) -> None:
    """Two prompts of 9 tokens, with two choices each, left in the middle."""
    events = [token(number, index=index) for number in range(6) for index in range(4)]

    async def main() -> None:
        async def script(conn, request):
            await conn.send(sse_head() + b"".join(map(chunked, events)))
            await conn.wait_closed()

        async with billed(tmp_path, script) as scene:
            body = {"model": "m", "prompt": ["one", "two"], "n": 2, "stream": True}
            await scene.client.request("POST", "/v1/completions", orjson.dumps(body))
            for _ in range(4):
                await scene.client.read_until(b"t5 ")
            await scene.client.close()
            record = await scene.record()
            assert (record.prompt, record.completion, record.amount) == (18, 20, cost(18, 20))

    run(main())


def test_what_a_stream_used_is_not_what_its_text_says_of_usage(tmp_path: Path) -> None:
    """A model that writes about usage, one word of it alone in an event."""
    events = stream(4, running=False)
    said = {"id": "c", "choices": [{"index": 0, "delta": {"content": "usage"}, "finish_reason": None}]}
    events[1:1] = [event(said), event({**said, "choices": [{"index": 0, "delta": {"content": '"usage": {"a": 1}'}}]})]
    events[-2] = last_usage(9, 6)

    async def main() -> None:
        async with billed(tmp_path, sse_answer(events)) as scene:
            got = await scene.client.post(PATH, STREAM)
            assert got.body == b"".join([*events[:-2], events[-1]])
            assert (await scene.record()).amount == cost(9, 6)

    run(main())
