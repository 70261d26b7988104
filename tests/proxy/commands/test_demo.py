"""`tailrace demo`, from its first line to its last process."""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from fakes import run
from openai import AsyncOpenAI
from served import Served, children, ended, launch

README = (Path(__file__).parents[3] / "README.md").read_text()


def family(pid: int) -> list[int]:
    """A process with all that it has started, and what those have."""
    return [pid, *(other for child in children(pid) for other in family(child))]


async def conversation(url: str) -> str:
    async with AsyncOpenAI(base_url=f"{url}/v1", api_key="none-needed") as client:
        text = ""
        stream = await client.chat.completions.create(
            model="demo", stream=True, max_tokens=6, messages=[{"role": "user", "content": "Hello!"}]
        )
        async for chunk in stream:
            text += chunk.choices[0].delta.content or "" if chunk.choices else ""
        return text


def test_demo_answers_the_sdk_and_leaves_nothing_behind(tmp_path: Path) -> None:
    async def body() -> None:
        process = await launch("demo", "--port", "0")
        demo = Served(process, tmp_path, "")
        try:
            url = (await demo.until("ready http", demo.out)).removeprefix("ready ")
            await demo.until("Ctrl-C ends it.", demo.out)
            assert any(f"curl -N {url}/v1/chat/completions" in line for line in demo.out)
            assert (await conversation(url)).strip()
            everybody = family(process.pid)
            # Itself; a gateway; two sidecars, each with its engine and the engine's keeper.
            assert len(everybody) == 1 + 1 + 2 * 3
            demo.signal(signal.SIGINT)
            assert await demo.end() == 0
            await ended(*everybody)
            assert all(line.startswith("engine | ") for line in demo.log)
        finally:
            await demo.kill()

    run(body())


@pytest.fixture
def brief() -> Iterator[Path]:
    """A folder with a path that is short enough for sockets in it."""
    with TemporaryDirectory(prefix="demo") as folder:
        yield Path(folder)


def test_killed_demo_leaves_nothing_behind_either(brief: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(brief))

    async def body() -> None:
        process = await launch("demo", "--port", "0", "--workers", "1")
        demo = Served(process, brief, "")
        try:
            await demo.until("ready http", demo.out)
            everybody = family(process.pid)
            demo.signal(signal.SIGKILL)
            await ended(*everybody)
            (left,) = brief.iterdir()
            # What it could not remove itself, the next one does.
            process = await launch("demo", "--port", "0", "--workers", "1")
            another = Served(process, brief, "")
            try:
                await another.until("ready http", another.out)
                assert not left.exists()
                another.signal(signal.SIGINT)
                assert await another.end() == 0
                assert list(brief.iterdir()) == []
            finally:
                await another.kill()
        finally:
            await demo.kill()

    run(body())


def test_each_sidecar_of_a_demo_has_a_name_of_its_own(tmp_path: Path) -> None:
    async def body() -> None:
        demo = Served(await launch("demo", "--port", "0", "--log-level", "info"), tmp_path, "")
        try:
            for index in (0, 1):
                assert "engine ready" in await demo.until(f"worker[{index}]: engine ready")
            demo.signal(signal.SIGINT)
            assert await demo.end() == 0
            assert len([line for line in demo.log if line.endswith("demo: stopped")]) == 3
        finally:
            await demo.kill()

    run(body())


def test_demo_on_a_taken_port_is_one_clear_line() -> None:
    async def body() -> None:
        server = await asyncio.start_server(lambda _reader, _writer: None, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            process = await launch("demo", "--port", str(port), "--workers", "1")
            out, err = await process.communicate()
        assert (process.returncode, out) == (1, b"")
        assert err.decode() == f"tailrace: cannot listen on 127.0.0.1:{port}: address already in use\n"

    run(body())


def test_an_engine_that_is_killed_as_the_readme_says_costs_no_stream(tmp_path: Path) -> None:
    (block,) = (block for block in re.findall(r"```sh\n(.*?)```", README, re.DOTALL) if "kill -9" in block)

    async def body() -> None:
        process = await launch("demo", "--port", "0")
        demo = Served(process, tmp_path, "")
        try:
            url = (await demo.until("ready http", demo.out)).removeprefix("ready ")
            # Only those of this demo: others may run here.
            engines = [each for each in family(process.pid) if not children(each) and "worker.sim" in command(each)]
            assert len(engines) == 2
            script = re.sub(r"\$\(pgrep .*?\)", str(engines[0]), block).replace("http://127.0.0.1:8080", url)
            script = script.replace("sleep 2", "sleep 1").replace('"max_tokens": 500', '"max_tokens": 250')
            shell = await asyncio.create_subprocess_exec(
                "bash", "-c", script, cwd=tmp_path, stdout=asyncio.subprocess.PIPE
            )
            out, _ = await shell.communicate()
            whole, *texts = out.decode().splitlines()
            assert whole.strip() == "8"
            assert [line.split()[0] for line in texts] == ["8"]
            assert any("engine gone: its process ended (signal 9)" in line for line in demo.log)
            demo.signal(signal.SIGINT)
            assert await demo.end() == 0
        finally:
            await demo.kill()

    run(body())


def command(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
