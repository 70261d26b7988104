"""The C tools, built and run for a moment: the bodies they send, the samples they dump."""

import http.client
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest
from conftest import LOADTESTS

pytestmark = pytest.mark.skipif(not (shutil.which("gcc") and shutil.which("make")), reason="needs gcc and make")
SOURCES = ("Makefile", "loadgen.c", "mockworker.c", "util.h")


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tools")
    for name in SOURCES:
        shutil.copy(LOADTESTS / "bench" / name, folder)
    subprocess.run(
        ["make", "-s", "-C", str(folder), "CFLAGS=-O0 -Wall -Wextra -Werror -std=gnu11 -D_GNU_SOURCE"], check=True
    )
    return folder


@pytest.fixture
def worker(tools: Path) -> Iterator[int]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    process = subprocess.Popen([tools / "mockworker", "--port", str(port)])
    try:
        while process.poll() is None:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
        yield port
    finally:
        process.kill()
        process.wait()


def load(tools: Path, port: int, *arguments: str) -> dict[str, object]:
    times = ("--duration", "0.2", "--warmup", "0")
    command = [str(tools / "loadgen"), "--target", f"127.0.0.1:{port}", *times, *arguments]
    output = subprocess.run(command, capture_output=True, check=True, timeout=30).stdout
    found = orjson.loads(output)
    assert isinstance(found, dict)
    return found


def body_sent(tools: Path, shape: str) -> dict[str, object]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        target = f"127.0.0.1:{server.getsockname()[1]}"
        arguments = ("--mode", "unary", "--conc", "1", "--body-bytes", "100000", "--shape", shape)
        process = subprocess.Popen([tools / "loadgen", "--target", target, *arguments], stderr=subprocess.DEVNULL)
        try:
            connection, _ = server.accept()
            with connection, connection.makefile("rb") as stream:
                stream.readline()
                length = int(http.client.parse_headers(stream)["content-length"])
                found = orjson.loads(stream.read(length))
        finally:
            process.kill()
            process.wait()
    assert isinstance(found, dict)
    return found


def test_shapes_are_valid_and_of_like_size(tools: Path) -> None:
    bodies = {shape: body_sent(tools, shape) for shape in ("plain", "messages", "unicode")}
    messages = {shape: body["messages"] for shape, body in bodies.items()}
    assert [len(found) for found in messages.values()] == [1, 450, 1]  # type: ignore[arg-type]
    for body in bodies.values():
        assert 100_000 <= len(orjson.dumps(body)) < 100_400
    roles = [message["role"] for message in messages["messages"]]  # type: ignore[attr-defined]
    assert roles == ["system", *["user", "assistant"] * 224, "user"]
    text = messages["unicode"][0]["content"]  # type: ignore[index]
    assert max(map(ord, text)) > 0xFFFF
    assert sum(character.isascii() for character in text) < len(text) / 2


def test_the_dump_holds_every_latency_of_the_window(tools: Path, worker: int, tmp_path: Path) -> None:
    dump = tmp_path / "samples"
    found = load(tools, worker, "--mode", "unary", "--rate", "200", "--dump", str(dump))
    samples = sorted(int(line) for line in dump.read_text().split())
    assert len(samples) == found["ok"]
    assert samples[-1] / 1e3 == pytest.approx(found["latency_us"]["max"], abs=0.1)  # type: ignore[index]


def test_streams_through_the_mock_worker_are_whole(tools: Path, worker: int) -> None:
    found = load(tools, worker, "--mode", "stream", "--conc", "4", "--tokens", "8")
    assert found["failed"] == 0
    assert isinstance(found["ok"], int)
    assert found["ok"] > 0


def test_an_unknown_shape_is_refused(tools: Path) -> None:
    run = subprocess.run(
        [tools / "loadgen", "--target", "127.0.0.1:1", "--conc", "1", "--shape", "round"], capture_output=True
    )
    assert run.returncode == 2
    assert b"--shape" in run.stderr
