"""The command line itself, and what `serve` says when it cannot begin."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fakes import run, yaml_for
from served import launch, serving
from tailrace.proxy import cli
from tailrace.proxy.cli import main
from tailrace.proxy.listener import Listener
from tailrace.proxy.supervisor import Fatal, listening

COMMANDS = ("serve", "check", "workers", "init", "schema", "demo", "version", "sim")


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    for command in COMMANDS:
        assert f"\n    {command} " in shown


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_of_its_own(capsys: pytest.CaptureFixture[str], command: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    assert f"usage: tailrace {command}" in capsys.readouterr().out


def test_help_of_the_demo_tells_its_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["demo", "--help"])
    assert "(default: warning)" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [[], ["serv"], ["serve"], ["workers"], ["demo", "--workers", "x"]])
def test_wrong_arguments(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("usage: tailrace")


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("tailrace 0.")
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert (ended.value.code, " ".join(capsys.readouterr().out.split())) == (0, told.strip())


def test_it_is_a_module_too() -> None:
    ended = subprocess.run([sys.executable, "-m", "tailrace.proxy", "--help"], capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith("usage: tailrace ")


def test_interrupted_command(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_options: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli.version, "run", interrupt)
    assert main(["version"]) == 130


@pytest.mark.parametrize("arguments", [["check", "--yaml"], ["check"], ["schema"]])
def test_a_reader_that_has_seen_enough(tmp_path: Path, arguments: list[str]) -> None:
    file = tmp_path / "gateway.yaml"
    file.write_text(yaml_for("http://127.0.0.1:1"))
    words = [sys.executable, "-c", "import sys; from tailrace.proxy.cli import main; sys.exit(main())", *arguments]
    reader, writer = os.pipe()
    os.close(reader)
    ended = subprocess.run(words + [str(file)] * (arguments[0] == "check"), stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (141, b"")


async def failed(file: Path) -> tuple[int, str, str]:
    process = await launch("serve", str(file))
    out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


def test_address_in_use_is_one_clear_line(tmp_path: Path) -> None:
    async def body() -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            file = tmp_path / "gateway.yaml"
            for key, of, text in (
                ("listen", "", yaml_for("http://127.0.0.1:1").replace("127.0.0.1:0", address) + "admin: off\n"),
                ("admin", "`admin`, ", yaml_for("http://127.0.0.1:1") + f"admin: {address}\n"),
            ):
                file.write_text(text)
                code, out, err = await failed(file)
                assert (code, out) == (1, ""), key
                assert err == f"tailrace: cannot listen on {of}{address}: address already in use\n"

    run(body())


def test_socket_that_may_not_be_made(tmp_path: Path) -> None:
    """What comes to stand there after the file was checked is left alone, too."""
    (tmp_path / "S").touch()
    with pytest.raises(Fatal) as failed:
        listening([Listener(address=f"unix:{tmp_path}/S")])
    assert str(failed.value) == f"cannot listen on unix:{tmp_path}/S: {tmp_path}/S exists and is no socket"
    assert (tmp_path / "S").is_file()


BROKEN = """
from contextlib import asynccontextmanager
from dataclasses import dataclass
from tailrace.proxy.plugin import Plugin

@dataclass(frozen=True)
class Config: pass

class Broken(Plugin):
    Config = Config

    @asynccontextmanager
    async def running(self):
        raise OSError(2, "No such file or directory", "keys.yaml")
        yield
"""


def test_plugin_that_cannot_start_is_told_and_nothing_is_left(tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "broken_start.py").write_text(BROKEN)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    async def body() -> None:
        yaml = yaml_for("http://127.0.0.1:1", plugins="['broken_start:Broken']", more="processes: 2\n")
        async with serving(tmp_path, yaml, ready=False) as it:
            assert await it.end() == 1
            assert it.out == []
            (told,) = [line for line in it.log if line.startswith("tailrace: ")]
            assert told.startswith(
                "tailrace: plugin 'broken_start:Broken' could not start: FileNotFoundError: [Errno 2] "
                f"No such file or directory: 'keys.yaml' (at {tmp_path}/broken_start.py:"
            )
            assert told.endswith(" in running)")

    run(body())


DYING = """
import os
from dataclasses import dataclass
from pathlib import Path
from tailrace.proxy.plugin import Plugin
from contextlib import asynccontextmanager

@dataclass(frozen=True)
class Config: pass

class Dying(Plugin):
    Config = Config

    @asynccontextmanager
    async def running(self):
        if Path("%s").exists():
            os._exit(7)
        yield
"""


def test_crash_loop_is_reported_and_ends_when_nobody_serves(tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "dying_start.py").write_text(DYING % (tmp_path / "die"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    async def body() -> None:
        yaml = yaml_for("http://127.0.0.1:1", plugins="['dying_start:Dying']")
        async with serving(tmp_path, yaml) as it:
            (tmp_path / "die").touch()
            os.kill(it.processes[0], signal.SIGKILL)
            assert await it.end() == 1
            told = [line for line in it.log if "process 0 cannot be replaced" in line]
            assert len(told) == 5
            assert it.log[-1] == (
                "tailrace: no process can serve any more: process 0 ended at its start, with exit code 7"
            )

    run(body())
