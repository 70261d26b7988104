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


def logged(path: Path, *scripts, asks) -> list[dict]:
    """The lines of a gateway's life."""

    async def body():
        plugins = f"- access_log: {{file: {path}}}"
        async with Upstream(*scripts) as upstream, gateway(yaml_for(upstream, plugins=plugins)) as process:
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
        await conn.send(sse_head() + b"".join(chunked(event) for event in stream_of(["a"])[:2]))
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


def test_every_field_is_in_the_guide(tmp_path):
    guide = (Path(__file__).parents[2] / "plugins/README.md").read_text().split("### The fields of the access log")[1]
    rows = [line.split(" | ")[0] for line in guide.splitlines() if line.startswith("| `")]
    told = [name for row in rows for name in re.findall(r"`(\w+)`", row)]

    async def asks(url, upstream):
        async with RawClient(url) as client:
            await client.post("/v1/chat/completions", CHAT, {"x-request-id": "mine"})
            await client.get("/v1/models")
            await client.post("/v1/chat/completions", CHAT)

    lines = logged(tmp_path / "log", json_answer(chat_answer("x")), json_answer({}, 500), asks=asks)
    written = {name for line in lines for name in line}
    assert written - {"usage"} == set(told) - {"usage"}
    assert len(told) == len(set(told))


def test_standard_output(capfd):
    async def body():
        async with Upstream(json_answer(chat_answer("x"))) as upstream:
            async with gateway(yaml_for(upstream, plugins="[access_log]")) as process:
                async with RawClient(process.doors[0].shown) as client:
                    await client.post("/v1/chat/completions", CHAT)

    run(body())
    assert orjson.loads(capfd.readouterr().out)["status"] == 200
