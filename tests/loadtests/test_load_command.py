"""The command itself: exit status, files, interruption."""

import asyncio
import signal
import sys
from pathlib import Path

import orjson
import pytest
from conftest import LOADTESTS
from scripted_endpoint import GOOD_STREAM, Step, plain, serving


async def start(*arguments: str) -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(
        sys.executable, str(LOADTESTS / "load.py"), *arguments, stdout=pipe, stderr=pipe
    )


async def finished(process: asyncio.subprocess.Process) -> tuple[int, str, str]:
    out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


def test_a_clean_run_writes_its_files_and_exits_0(tmp_path: Path) -> None:
    figures, records = tmp_path / "f.json", tmp_path / "r.jsonl"

    async def body() -> tuple[int, str, str]:
        async with serving(lambda n: [GOOD_STREAM]) as endpoint:
            files = ("--json", str(figures), "--records", str(records))
            return await finished(await start("--url", endpoint.url, "--rate", "50", "--duration", "0.2", *files))

    status, out, err = asyncio.run(body())
    assert (status, err) == (0, "")
    assert "TTFT" in out
    phase = orjson.loads(figures.read_bytes())["phases"][0]
    assert phase["ok"] == phase["requests"] == len(records.read_bytes().splitlines()) > 0


@pytest.mark.parametrize(("allowed", "status"), [("0", 1), ("4", 1), ("5", 0), ("40%", 1), ("50%", 0)])
def test_errors_beyond_what_is_allowed_exit_1(allowed: str, status: int) -> None:
    def script(number: int) -> list[Step]:
        return [plain(b"full", "503 Busy")] if number % 2 else [GOOD_STREAM]

    async def body() -> int:
        async with serving(script) as endpoint:
            load = ("--rate", "100", "--duration", "0.1", "--arrivals", "constant")
            run = await start("--url", endpoint.url, *load, "--max-errors", allowed)
            return (await finished(run))[0]

    assert asyncio.run(body()) == status


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--url", "ftp://x"),
        ("--url", "http://127.0.0.1:1/v1"),
        ("--url", "http://127.0.0.1:1", "--rate", "0"),
        ("--url", "http://127.0.0.1:1", "--path", "/v1/embeddings"),
        ("--url", "http://127.0.0.1:1", "--header", "no colon"),
        ("--url", "http://127.0.0.1:1", "--max-tokens", "uniform:9:1"),
        ("--url", "http://127.0.0.1:1", "--phases", "10"),
        ("--url", "http://127.0.0.1:1", "--max-errors", "few"),
    ],
)
def test_wrong_usage_exits_2_with_a_message(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    from openloop.options import parse_options

    with pytest.raises(SystemExit) as ended:
        parse_options(arguments, tty=False)
    assert ended.value.code == 2
    assert "error:" in capsys.readouterr().err


def test_an_interrupt_still_prints_what_was_measured() -> None:
    async def body() -> tuple[int, str, str]:
        reached = asyncio.Event()

        async def hold() -> None:
            reached.set()
            await asyncio.Event().wait()

        async with serving(lambda n: [GOOD_STREAM] if n == 0 else [hold]) as endpoint:
            run = await start("--url", endpoint.url, "--rate", "50", "--duration", "60")
            await reached.wait()
            run.send_signal(signal.SIGINT)
            return await finished(run)

    status, out, _ = asyncio.run(body())
    assert status == 0
    assert "TTFT" in out
    assert "interrupted" in out
