"""What the `access_log` plugin writes, and what happens where it cannot."""

from __future__ import annotations

import asyncio
import os
import re
import threading
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
from tailrace.plugins import access_log_writer
from tailrace.plugins.access_log import AccessLog, Config
from tailrace.plugins.access_log_writer import Writer

SECRET = "sk-very-secret"
CHAT = {"model": "m", "messages": [{"role": "user", "content": "a private prompt"}]}


def lines_of(path: Path) -> list[dict]:
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


def logged(path: Path, *scripts, asks) -> list[dict]:
    """The lines of a gateway's life."""

    async def body():
        plugins = f"- access_log: {{file: {path}}}"
        async with Upstream(*scripts) as upstream, gateway(yaml_for(upstream, plugins=plugins)) as process:
            await asks(process.doors[0].shown, upstream)

    run(body())
    return lines_of(path)


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


def wait_for(condition) -> None:
    pause = threading.Event()
    while not condition():
        pause.wait(0.005)


@pytest.fixture
def started():
    """Makes running writers with short intervals, and ends them."""
    writers: list[Writer] = []

    def start(path: Path | None, limit: int = 100, fd: int | None = None) -> Writer:
        writer = Writer(path, limit)
        if fd is not None:
            writer._fd = fd
        writer.open()
        writer.start()
        writers.append(writer)
        return writer

    yield start
    for writer in writers:
        writer.finish()
        writer.join(5)
        assert not writer.is_alive()


@pytest.fixture(autouse=True)
def quickly(monkeypatch):
    monkeypatch.setattr(access_log_writer, "INTERVAL", 0.01)
    monkeypatch.setattr(access_log_writer, "RETRY", 0.02)
    monkeypatch.setattr(access_log_writer, "LAST_CHANCE", 0.1)


def test_a_rotated_file_is_opened_again(tmp_path, started):
    path = tmp_path / "log"
    writer = started(path)
    writer.put(b'{"n":1}\n')
    wait_for(lambda: path.read_bytes())
    path.rename(tmp_path / "log.1")
    writer.put(b'{"n":2}\n')
    wait_for(lambda: path.exists() and path.read_bytes())
    assert lines_of(path) == [{"n": 2}]
    assert lines_of(tmp_path / "log.1") == [{"n": 1}]


def test_reopen_follows_a_path_that_looks_the_same(tmp_path):
    async def body():
        plugin = AccessLog(Config(file=tmp_path / "log"))
        async with plugin.running():
            before = plugin._writer._fd
            inode = os.fstat(before).st_ino
            spare = os.open("/dev/null", os.O_RDONLY)
            plugin.reopen()
            plugin._writer.put(b"{}\n")
            while plugin._writer.reopen:
                await asyncio.sleep(0.005)
            assert os.fstat(plugin._writer._fd).st_ino == inode
            os.close(spare)

    run(body())


def test_a_full_disk_is_survived_and_its_losses_are_reported(tmp_path, started, caplog):
    path = tmp_path / "log"
    path.symlink_to("/dev/full")
    writer = started(path, limit=3)
    writer.put(b'{"n":1}\n')
    wait_for(lambda: writer.failures)
    for n in range(2, 7):
        writer.put(b'{"n":%d}\n' % n)
    assert writer.dropped == 2
    path.unlink()
    wait_for(lambda: path.exists() and len(path.read_bytes().splitlines()) == 5)
    *kept, note = lines_of(path)
    assert [line["n"] for line in kept] == [1, 2, 3, 4]
    assert note["dropped"] == 2
    assert writer.is_alive()
    assert sum("No space left" in record.message for record in caplog.records) == 1


def test_a_pipe_that_nobody_reads_delays_nothing_but_lines(started):
    inside, outside = os.pipe()
    line = b'{"x":"' + b"x" * 500 + b'"}\n'
    writer = started(None, limit=200, fd=outside)
    put = 0
    while not writer.dropped:
        writer.put(line)
        put += 1
    got = b""
    while got.count(line) < put - writer.dropped or b'"dropped"' not in got:
        got += os.read(inside, 65536)
    notes = [orjson.loads(other) for other in got.splitlines(keepends=True) if other != line]
    assert sum(note["dropped"] for note in notes) == writer.dropped
    os.close(inside)
    writer.put(line)
    wait_for(lambda: writer.failures)
    assert writer.is_alive()
    writer.finish()
    writer.join(5)
    os.close(outside)


def test_lines_to_a_pipe_are_never_cut_by_those_of_another_process(started):
    inside, outside = os.pipe()
    line = b'{"x":"' + b"x" * 900 + b'"}\n'
    writers = [started(None, limit=150, fd=outside) for _ in range(3)]
    for _ in range(150):
        for writer in writers:
            writer.put(line)
    got = b""
    while len(got) < 450 * len(line):
        got += os.read(inside, 4096)
    assert set(got.splitlines(keepends=True)) == {line}
    for writer in writers:
        writer.finish()
        writer.join(5)
    os.close(inside)
    os.close(outside)


def test_a_line_torn_by_a_full_disk_ends_with_its_file(tmp_path, started, monkeypatch):
    path = tmp_path / "log"
    path.touch()
    real = os.write
    wrote = []

    def half(fd: int, data: bytes) -> int:
        if wrote:
            if not (tmp_path / "log.1").exists():
                raise OSError(28, "No space left on device")
            return real(fd, data)
        wrote.append(1)
        return real(fd, data[:12])

    monkeypatch.setattr(access_log_writer.os, "write", half)
    writer = started(path)
    writer.put(b'{"n":1}\n')
    writer.put(b'{"n":2}\n')
    writer.put(b'{"n":3}\n')
    wait_for(lambda: writer.failures)
    path.rename(tmp_path / "log.1")
    wait_for(lambda: path.exists() and len(path.read_bytes().splitlines()) == 2)
    assert lines_of(path)[0] == {"n": 3}
    assert lines_of(path)[1]["dropped"] == 1


def test_what_cannot_be_written_at_the_end_is_counted(tmp_path, caplog):
    async def body():
        path = tmp_path / "log"
        path.symlink_to("/dev/full")
        plugin = AccessLog(Config(file=path))
        async with plugin.running():
            for _ in range(5):
                plugin._writer.put(b"{}\n")
        assert plugin.dropped == 5
        assert plugin.failures
        assert not plugin._writer.is_alive()

    run(body())
    assert any("5 lines were lost" in record.message for record in caplog.records)


def test_a_path_that_cannot_be_opened_is_an_error_at_start(tmp_path):
    async def body():
        async with AccessLog(Config(file=tmp_path / "no" / "log")).running():
            raise AssertionError

    with pytest.raises(FileNotFoundError):
        run(body())
