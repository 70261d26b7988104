"""HAProxy in front, as config/deploy has it: HTTP/2 for clients, and the gateway knows who they are."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import subprocess
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from certificates import Authority
from doors import listening
from fakes import chat_answer, chat_chunk, chunked, event, run, sse_head

HAPROXY = shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin:/usr/local/sbin")
CURL = shutil.which("curl")
CONFIG = Path(__file__).parents[2] / "config" / "deploy" / "haproxy.cfg"

pytestmark = [
    pytest.mark.skipif(HAPROXY is None, reason="haproxy is not installed"),
    pytest.mark.skipif(
        CURL is None or b"HTTP2" not in subprocess.run([CURL, "-V"], capture_output=True, check=False).stdout,
        reason="there is no curl that speaks HTTP/2",
    ),
]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@asynccontextmanager
async def fronted(folder: Path):
    """A gateway behind HAProxy: the URL for clients, the authority they trust, the worker."""
    authority = Authority(folder)
    pair = authority.issue("front")
    joined = folder / "front-both.pem"
    joined.write_bytes(pair.cert.read_bytes() + pair.key.read_bytes())
    async with listening('{address: "127.0.0.1:0", proxy_protocol: true}') as (process, upstream, faults):
        port = free_port()
        environment = os.environ | {
            "TAILRACE_FRONT": f"127.0.0.1:{port}",
            "TAILRACE_CERT": str(joined),
            "TAILRACE_SERVER": process.doors[0].shown.removeprefix("http://"),
        }
        haproxy = await asyncio.create_subprocess_exec(HAPROXY, "-db", "-f", str(CONFIG), env=environment)
        try:
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                except OSError:
                    assert haproxy.returncode is None
                    await asyncio.sleep(0.02)
                    continue
                writer.close()
                break
            yield f"https://127.0.0.1:{port}", authority, upstream, faults
        finally:
            if haproxy.returncode is None:
                haproxy.kill()
            await haproxy.wait()


async def curl(authority: Authority, *arguments: str):
    return await asyncio.create_subprocess_exec(
        CURL, "-sSN", "--cacert", str(authority.ca), *arguments, stdout=asyncio.subprocess.PIPE
    )


def asking(stream: bool) -> list[str]:
    body = json.dumps({"model": "m", "messages": [], "stream": stream})
    return ["-H", "content-type: application/json", "-d", body]


@pytest.mark.parametrize("version", ["--http2", "--http1.1"])
def test_clients_speak_http_2_and_the_worker_is_told_who_they_are(tmp_path: Path, version: str):
    async def body():
        async with fronted(tmp_path) as (url, authority, upstream, faults):
            shown = ["-w", "\n%{http_version} %{http_code}"]
            done = await curl(authority, version, *shown, *asking(stream=False), url + "/v1/chat/completions")
            out, _ = await done.communicate()
            answer, _, end = out.rpartition(b"\n")
            assert end == (b"2 200" if version == "--http2" else b"1.1 200")
            assert json.loads(answer) == chat_answer("hi")
            (request,) = upstream.requests
            assert request.header("x-forwarded-for") == "127.0.0.1"
            assert request.header("x-forwarded-proto") == "https"
            assert faults() == []

    run(body())


def test_events_arrive_one_by_one(tmp_path: Path):
    async def body():
        seen = asyncio.Queue()

        async def one_by_one(conn, request):
            await conn.send(sse_head())
            for text in ("one", "two", "three"):
                await conn.send(chunked(chat_chunk(text)))
                # The next event is made only when the client has the one before it.
                assert text in await seen.get()
            await conn.send(chunked(chat_chunk(finish="stop")) + chunked(event("[DONE]")) + chunked(b""))

        async with fronted(tmp_path) as (url, authority, upstream, _):
            upstream.scripts = [one_by_one]
            client = await curl(authority, "--http2", *asking(stream=True), url + "/v1/chat/completions")
            lines = []
            while line := await client.stdout.readline():
                if line.strip():
                    lines.append(line.strip())
                    await seen.put(line.decode())
            assert await client.wait() == 0
            assert len(lines) == 5
            assert lines[-1] == b"data: [DONE]"

    run(body())


def test_a_client_that_leaves_is_gone_for_the_worker_too(tmp_path: Path):
    async def body():
        async def endless(conn, request):
            await conn.send(sse_head() + chunked(chat_chunk("a")))
            await conn.wait_closed()

        async with fronted(tmp_path) as (url, authority, upstream, _):
            upstream.scripts = [endless]
            client = await curl(authority, "--http2", *asking(stream=True), url + "/v1/chat/completions")
            assert b'"a"' in await client.stdout.readline()
            client.kill()
            await client.communicate()
            async with asyncio.timeout(5):
                while not upstream.closed_at:
                    await asyncio.sleep(0.01)

    run(body())


def test_the_file_is_valid(tmp_path: Path):
    authority = Authority(tmp_path)
    pair = authority.issue("front")
    joined = tmp_path / "both.pem"
    joined.write_bytes(pair.cert.read_bytes() + pair.key.read_bytes())
    environment = os.environ | {
        "TAILRACE_FRONT": ":443",
        "TAILRACE_CERT": str(joined),
        "TAILRACE_SERVER": "127.0.0.1:8080",
    }
    done = subprocess.run(
        [HAPROXY, "-c", "-f", str(CONFIG)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr.upper()
