"""What the `access_log` plugin writes of each call."""

from __future__ import annotations

import re
from pathlib import Path

import orjson
import pytest
from fakes import (
    Connection,
    RawClient,
    Request,
    Upstream,
    chat_answer,
    chunked,
    event,
    gateway,
    json_answer,
    run,
    sse_answer,
    sse_head,
    stream_of,
    yaml_for,
)

SECRET = "sk-very-secret"
CHAT = {"model": "m", "messages": [{"role": "user", "content": "a private prompt"}]}


def logged(path: Path, *scripts, asks, more=lambda upstream: "") -> list[dict]:
    """The lines of a gateway's life."""

    async def body():
        plugins = f"- access_log: {{file: {path}}}"
        async with Upstream(*scripts) as upstream:
            async with gateway(yaml_for(upstream, plugins=plugins, more=more(upstream))) as process:
                await asks(process.doors[0].shown, upstream)

    run(body())
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


def test_a_line_for_a_unary_answer(tmp_path):
    async def asks(url, upstream):
        async with RawClient(url) as client:
            headers = {"authorization": f"Bearer {SECRET}", "x-request-id": 'mine"\xe9' + "x" * 200}
            await client.post("/v1/chat/completions?key=" + SECRET, CHAT, headers)

    path = tmp_path / "access.log"
    (line,) = logged(path, json_answer(chat_answer("an answer")), asks=asks)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["time"])
    assert line["request_id"].startswith("req_")
    assert line["client"] == "127.0.0.1"
    assert (line["method"], line["route"], line["path"]) == ("POST", "chat", "/v1/chat/completions")
    assert (line["status"], line["ending"], line["attempts"]) == (200, "completed", 1)
    assert (line["model"], line["served_model"], line["stream"]) == ("m", "m", False)
    assert line["worker"].startswith("http://127.0.0.1:")
    assert line["bytes_in"] == len(orjson.dumps(CHAT))
    assert 0 < line["ttft_ms"] <= line["duration_ms"]
    assert line["generation"] == 1
    assert line["client_request_id"] == ('mine"?' + "x" * 200)[:64]
    assert "fault" not in line
    raw = path.read_bytes()
    assert SECRET.encode() not in raw
    assert b"private" not in raw
    assert b"an answer" not in raw


def test_a_line_for_each_kind_of_end(tmp_path):
    async def asks(url, upstream):
        async with RawClient(url) as client:
            await client.post("/v1/chat/completions", {**CHAT, "stream": True})
            await client.post("/v1/chat/completions", {"model": "x" * 5000, "messages": []})
            await client.get("/nowhere?secret=1")
            await client.get("/v1/models")
            await client.post("/v1/chat/completions", {**CHAT, "stream": True})

    async def cut(conn: Connection, request: Request) -> None:
        await conn.send(sse_head() + b"".join(chunked(each) for each in stream_of(["a"])[:2]))
        conn.fin()

    lines = logged(tmp_path / "log", sse_answer(stream_of(["a"])), cut, asks=asks)
    stream, unknown, nowhere, models, lost = lines
    assert (stream["status"], stream["ending"], stream["stream"]) == (200, "completed", True)
    assert (unknown["status"], unknown["fault"], unknown["whose"]) == (404, "unknown_model", "client")
    assert unknown["code"] == "model_not_found"
    assert unknown["model"] == "x" * 128
    assert unknown["attempts"] == 0
    assert "worker" not in unknown
    assert (nowhere["status"], nowhere["route"], nowhere["path"]) == (404, "unmatched", "")
    assert (models["status"], models["source"], models["path"]) == (200, "models", "/v1/models")
    assert (lost["status"], lost["ending"], lost["whose"]) == (502, "upstream_lost", "network")


def test_a_client_that_leaves_is_one_line_and_no_traceback(tmp_path, caplog):
    async def held(conn: Connection, request: Request) -> None:
        await conn.wait_closed()

    async def asks(url, upstream):
        async with RawClient(url) as client:
            await client.request("POST", "/v1/chat/completions", orjson.dumps(CHAT))
            await upstream.asked()
            client.rst()
            await upstream.connections[0].wait_closed()

    (line,) = logged(tmp_path / "log", held, asks=asks)
    assert (line["status"], line["ending"], line["attempts"]) == (499, "client_gone", 1)
    assert not caplog.records


FAULTS = [
    (json_answer({"error": {"message": "no", "type": "BadRequestError", "param": None, "code": 400}}, 400), 400),
    (json_answer({"error": {"message": "no", "type": "x", "param": None, "code": "too_hot"}}, 429), "too_hot"),
    (json_answer({"detail": "no"}, 503), "worker_overloaded"),
    (json_answer({"error": "Unauthorized"}, 401), "upstream_auth_failed"),
]


@pytest.mark.parametrize(("answer", "code"), FAULTS)
def test_the_code_is_the_one_that_the_client_read(tmp_path, answer, code):
    read = []

    async def asks(url, upstream):
        async with RawClient(url) as client:
            read.append((await client.post("/v1/chat/completions", CHAT)).json()["error"]["code"])

    (line,) = logged(tmp_path / "log", answer, asks=asks)
    assert (line["code"], read) == (code, [code])


LOAD = b"\r\nx-tailrace-load: running=0;waiting=0;kv=0.00"
LOST = {"message": "gone", "type": "server_error", "param": None, "code": "upstream_lost"}


@pytest.mark.parametrize(
    ("load", "code", "fault"),
    [
        (LOAD, "upstream_lost", "connection_lost"),
        (LOAD, "server_shutting_down", "shutting_down"),
        (LOAD, 400, "error_event"),
        (b"", "upstream_lost", "error_event"),
        (b"", 400, "error_event"),
    ],
    ids=["lost", "shut down", "refused", "lost by no sidecar", "refused by no sidecar"],
)
@pytest.mark.parametrize("begun", [True, False])
def test_the_code_is_the_one_that_the_client_read_in_a_stream(tmp_path, begun, load, code, fault):
    """A sidecar, which says its load, says what went wrong by a code of its own."""
    read = []

    async def failing(conn: Connection, request: Request) -> None:
        pieces = [*(stream_of(["a"])[:2] if begun else []), event({"error": {**LOST, "code": code}})]
        await conn.send(sse_head().replace(b" OK", b" OK" + load, 1) + b"".join(map(chunked, pieces)))
        conn.fin()

    async def asks(url, upstream):
        async with RawClient(url) as client:
            answer = await client.post("/v1/chat/completions", {**CHAT, "stream": True})
            errors = [each.json() for each in answer.events if b"error" in each.data] if begun else [answer.json()]
            read.extend(each["error"]["code"] for each in errors)

    (line,) = logged(tmp_path / "access.log", failing, asks=asks)
    # Before the stream has begun an engine's number becomes the error's status, with the code of that.
    expected = "invalid_request_error" if code == 400 and not begun else code
    assert (line["code"], line["fault"], read) == (expected, fault, [expected])


@pytest.mark.parametrize(
    ("load", "fault"), [(LOAD, "upstream_timeout"), (b"", "http_error")], ids=["sidecar", "engine"]
)
def test_a_sidecars_own_refusal_is_named_as_it_named_it(tmp_path, load, fault):
    refused = json_answer({"error": {**LOST, "code": "upstream_timeout"}}, 504)

    async def asks(url, upstream):
        async with RawClient(url) as client:
            assert (await client.post("/v1/chat/completions", CHAT)).json()["error"]["code"] == "upstream_timeout"

    (line,) = logged(
        tmp_path / "access.log", refused.replace(b"\r\n", LOAD + b"\r\n", 1) if load else refused, asks=asks
    )
    assert (line["code"], line["fault"], line["status"]) == ("upstream_timeout", fault, 504)


def test_every_field_is_in_the_guide(tmp_path):
    guide = (Path(__file__).parents[2] / "plugins/README.md").read_text().split("### The fields of the access log")[1]
    guide = guide.split("\n### ")[0]
    rows = [line.split(" | ")[0] for line in guide.splitlines() if line.startswith("| `")]
    told = [name for row in rows for name in re.findall(r"`(\w+)`", row)]

    async def asks(url, upstream):
        async with RawClient(url) as client:
            await client.post("/v1/chat/completions", CHAT, {"x-request-id": "mine"})
            await client.get("/v1/models")
            await client.post("/v1/chat/completions", CHAT)

    lines = logged(tmp_path / "log", json_answer(chat_answer("x")), json_answer({}, 500), asks=asks)
    written = {name for line in lines for name in line}
    assert written - {"usage"} == set(told) - {"usage", "trace_id"}  # those come with plugins
    assert len(told) == len(set(told))


def test_standard_output(capfd):
    async def body():
        async with Upstream(json_answer(chat_answer("x"))) as upstream:
            async with gateway(yaml_for(upstream, plugins="[access_log]")) as process:
                async with RawClient(process.doors[0].shown) as client:
                    await client.post("/v1/chat/completions", CHAT)

    run(body())
    assert orjson.loads(capfd.readouterr().out)["status"] == 200


def test_a_path_that_is_passed_on_has_no_model(tmp_path):
    async def asks(url, upstream):
        async with RawClient(url) as client:
            assert (await client.get("/v1/files/one")).status == 200

    def passed_on(upstream):
        return (
            f"pools: {{p: {{workers: ['{upstream.url}']}}}}\nroutes: [{{path: '/v1/files/*', pool: p, methods: [GET]}}]"
        )

    (line,) = logged(tmp_path / "access.log", json_answer({}), asks=asks, more=passed_on)
    assert (line["route"], line["path"], line["status"]) == ("pass_through", "/v1/files/*", 200)
    assert line["worker"].startswith("http://127.0.0.1:")
    assert "served_model" not in line
    assert "model" not in line
