"""The command: what it prints, how it ends."""

import contextlib
import dataclasses
import json
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
from tailrace.worker.sim import Adapter, Fault, SimSettings
from tailrace.worker.sim.command import main, settings_from
from tailrace.worker.sim.failures import Kind

QUICK = ["--port", "0", "--ttft-ms", "0", "--served-model-name", "tiny"]


@contextlib.contextmanager
def process(*flags: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    command = [sys.executable, "-m", "tailrace.worker.sim", *QUICK, *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as sim:
        try:
            assert sim.stdout is not None
            found = re.fullmatch(r"ready (http://127\.0\.0\.1:\d+)\n", sim.stdout.readline())
            assert found
            yield sim, found[1]
        finally:
            sim.kill()


def stream(url: str, tokens: int) -> socket.socket:
    """A stream that has begun."""
    address = url.removeprefix("http://").split(":")
    client = socket.create_connection((address[0], int(address[1])), timeout=10)
    asked = {"messages": [{"role": "user", "content": "hi"}], "stream": True, "max_tokens": tokens, "ignore_eos": True}
    body = json.dumps(asked).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    client.sendall(head.encode() + body)
    data = b""
    while b"content" not in data:
        data += client.recv(65536)
    return client


def test_serves_and_ends_at_once_on_sigterm_when_idle() -> None:
    with process() as (sim, url):
        with urllib.request.urlopen(f"{url}/v1/models", timeout=10) as answer:
            assert json.load(answer)["data"][0]["id"] == "tiny"
        sim.send_signal(signal.SIGTERM)
        assert sim.wait(10) == 0


def test_sigterm_hangs_an_open_stream_until_the_client_leaves() -> None:
    with process("--itl-ms", "1") as (sim, url), stream(url, 2000) as client:
        sim.send_signal(signal.SIGTERM)
        client.settimeout(0.2)
        with pytest.raises(TimeoutError):
            while client.recv(65536):
                pass
        assert sim.poll() is None
        client.close()
        assert sim.wait(10) == 0


def test_sigterm_drains_where_a_timeout_is_given() -> None:
    with process("--itl-ms", "2", "--shutdown-timeout", "20") as (sim, url), stream(url, 100) as client:
        sim.send_signal(signal.SIGTERM)
        data = b""
        while part := client.recv(65536):
            data += part
        assert data.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
        assert sim.wait(10) == 0


def test_fault_that_ends_the_server_ends_the_process() -> None:
    with process() as (sim, url):
        body = json.dumps({"fail": "server_killed"}).encode()
        urllib.request.urlopen(urllib.request.Request(f"{url}/sim/control", body), timeout=10).close()
        assert sim.wait(10) == 1


def test_interrupt_ends_at_once() -> None:
    with process("--itl-ms", "50") as (sim, url), stream(url, 2000):
        sim.send_signal(signal.SIGINT)
        assert sim.wait(10) == 0


def test_unix_socket_is_announced(tmp_path: Path) -> None:
    path = tmp_path / "sim.sock"
    command = [sys.executable, "-m", "tailrace.worker.sim", "--port", "-1", "--uds", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as sim:
        try:
            assert sim.stdout is not None
            assert sim.stdout.readline() == f"ready unix:{path}\n"
            assert path.is_socket()
            sim.terminate()
            assert sim.wait(10) == 0
            assert not path.exists()
        finally:
            sim.kill()


def test_taken_port_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert main(["--port", str(taken.getsockname()[1])]) == 1
    assert "cannot listen" in capsys.readouterr().out


def test_flags_become_settings() -> None:
    flags = (
        "--port 9 --uds /s --api-key a --api-key b --served-model-name x y --lora-modules l=/l --runner generate "
        "--max-model-len 99 --max-num-queued-reqs 3 --seed 4 --shutdown-timeout 5 --no-enable-per-request-metrics "
        "--num-gpu-blocks-override 7 --fail stall:after_tokens=3,count=1 --fail slow:factor=2.5,share=0.1 "
        "--fail cut:rst,route=/v1/completions"
    )
    assert settings_from(flags.split()) == SimSettings(
        port=9,
        uds="/s",
        api_keys=("a", "b"),
        served_model_names=("x", "y"),
        lora_modules=(Adapter(name="l", path="/l"),),
        runner="generate",
        max_model_len=99,
        max_num_queued_reqs=3,
        seed=4,
        shutdown_timeout=5,
        enable_per_request_metrics=False,
        num_gpu_blocks=7,
        faults=(
            Fault(fail="stall", after_tokens=3, count=1),
            Fault(fail="slow", factor=2.5, share=0.1),
            Fault(fail="cut", rst=True, route="/v1/completions"),
        ),
    )


def test_without_flags_only_the_port_differs_from_the_defaults() -> None:
    assert settings_from([]) == SimSettings(port=8000)


@pytest.mark.parametrize("flags", ["--fail nonsense", "--fail stall:x=1", "--lora-modules law", "--itl-ms x"])
def test_nonsense_is_refused(flags: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        settings_from(flags.split())
    assert refused.value.code == 2
    assert "error: argument" in capsys.readouterr().err


def test_help_names_every_setting(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as done:
        main(["--help"])
    assert done.value.code == 0
    told = capsys.readouterr().out
    for flag in ("--ttft-ms", "--itl-ms", "--prefill-tokens-per-s", "--max-num-seqs", "--fail", "--shutdown-timeout"):
        assert flag in told


def test_help_tells_every_fault_and_its_fields(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        settings_from(["--help"])
    told = capsys.readouterr().out.split("kinds of faults")[1]
    for kind in get_args(Kind):
        assert kind in told
    for field in dataclasses.fields(Fault):
        assert field.name == "fail" or f"\n  {field.name} " in told


@pytest.mark.parametrize(
    ("flags", "fault"),
    [
        (["--port", "99999"], "argument --port: must be at most 65535, got 99999"),
        (["--port=-2"], "argument --port: must be at least 0, got -2"),
        (["--max-num-seqs", "0"], "argument --max-num-seqs: must be at least 1, got 0"),
        (["--max-num-queued-reqs", "0"], "argument --max-num-queued-reqs: must be at least 1, got 0"),
        (["--block-size", "0"], "argument --block-size: must be at least 1, got 0"),
        (["--num-gpu-blocks-override", "0"], "argument --num-gpu-blocks-override: must be at least 1, got 0"),
        (["--max-model-len", "0"], "argument --max-model-len: must be at least 1, got 0"),
        (["--embedding-dim", "x"], 'argument --embedding-dim: expected a whole number, got "x"'),
        (["--answer-tokens=-1"], "argument --answer-tokens: must be at least 0, got -1"),
        (["--itl-ms=-1"], "argument --itl-ms: must be at least 0, got -1"),
        (["--ttft-ms", "nan"], 'argument --ttft-ms: expected a number, got "nan"'),
        (["--model="], "argument --model: must not be empty"),
        (["--served-model-name", "a", ""], "argument --served-model-name: must not be empty"),
        (["--uds", "/" + 107 * "x"], "uds: a Unix socket's path has at most 107 bytes, and this one has 108"),
    ],
)
def test_what_a_file_could_not_say_is_refused(flags: list[str], fault: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        settings_from(flags)
    assert ended.value.code == 2
    assert capsys.readouterr().err.endswith(f"tailrace sim: error: {fault}\n")


def test_no_port_and_names_that_look_like_something_else() -> None:
    settings = settings_from(["--port=-1", "--model", "null", "--served-model-name", "1", "--itl-ms", "0.5"])
    assert (settings.port, settings.names, settings.model, settings.itl_ms) == (None, ("1",), "null", 0.5)


def test_the_help_says_which_answers_repeat_themselves(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        settings_from(["--help"])
    told = " ".join(capsys.readouterr().out.split())
    assert "The same prompt has the same answer where the request says `temperature: 0` or brings a `seed`" in told
