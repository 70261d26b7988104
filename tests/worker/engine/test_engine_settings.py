"""`engine:` as an operator writes it, and the command line that comes of it."""

from pathlib import Path

import pytest
from tailrace.proxy.config import ConfigError, decode_source, parse
from tailrace.worker.engine.command import EngineError, flags, vllm_command
from tailrace.worker.engine.settings import EngineSettings, VllmSettings


def decoded(text: str) -> EngineSettings:
    return decode_source(EngineSettings, parse(text, "worker.yaml", environ={}))


def test_a_launched_engine_is_decoded():
    settings = decoded(
        """
        vllm:
          model: org/name
          args: {max-model-len: 2048, enforce-eager: true, lora-modules: [a=/a, b=/b]}
          env: {HF_HUB_OFFLINE: 1}
        start: {limit: 4m}
        warmup: {kind: off}
        """
    )
    assert settings.vllm is not None
    assert settings.vllm.args == {"max-model-len": 2048, "enforce-eager": True, "lora-modules": ["a=/a", "b=/b"]}
    assert settings.vllm.env == {"HF_HUB_OFFLINE": "1"}
    assert (settings.start.limit, settings.warmup.kind, settings.watch.poll) == (240.0, "off", 0.05)


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:8000", "http://[::1]:8000/", "https://gpu.local", "unix:/run/v.sock"]
)
def test_addresses_of_found_engines(url):
    assert decoded(f"url: '{url}'").url == url


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("warmup: {kind: chat}", "exactly one of"),
        ("{url: 'http://h:1', vllm: {model: m}}", "exactly one of"),
        ("url: ftp://h", "http://host:port"),
        ("url: unix:relative", "absolute"),
        (f"url: unix:/{'x' * 200}", "107 bytes"),
        ("url: http://h:99999", "ort"),
        ("url: http://h:1/v1", "no path"),
        ("url: http://u:p@h:1", "no path"),
        ("{vllm: {model: m}, pid: 3}", "go with `url`"),
        ("{url: 'http://h:1', pid: 0}", "at least 1"),
        ("{url: 'http://h:1', pid: 3, pid_file: p}", "not both"),
        ("vllm: {model: '-m'}", "got a flag"),
        ("vllm: {model: m, args: {'--port': 1}}", "not a flag's name"),
        ("vllm: {model: m, args: {uds: /s, port: 1}}", "not both"),
        ("vllm: {model: m, args: {enforce-eager: ~}}", "true gives"),
        ("{vllm: {model: m}, start: {back_off: 2m}}", "back_off_limit"),
        ("{vllm: {model: m}, warmup: {prompts: 1}}", "below `steady`"),
        ("{vllm: {model: m}, watch: {poll: 0}}", "above"),
    ],
)
def test_what_cannot_work_is_refused_with_its_reason(text, says):
    with pytest.raises(ConfigError, match=says):
        decoded(text)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({"enforce-eager": True}, ["--enforce-eager"]),
        ({"enable-prefix-caching": False}, ["--no-enable-prefix-caching"]),
        ({"max-model-len": 2048}, ["--max-model-len=2048"]),
        ({"hf-overrides": {"a": 1}}, ['--hf-overrides={"a":1}']),
        ({"served-model-name": ["a", "b"]}, ["--served-model-name", "a", "b"]),
        ({"seed": -1}, ["--seed=-1"]),
    ],
)
def test_flags(args, words):
    assert list(flags(args)) == words


@pytest.fixture
def program(tmp_path: Path) -> str:
    program = tmp_path / "vllm"
    program.touch(0o755)
    return str(program)


@pytest.mark.parametrize(
    ("args", "target", "words"),
    [
        ({}, "unix:/f/engine.sock", ["--uds=/f/engine.sock"]),
        ({"uds": "/run/v.sock"}, "unix:/run/v.sock", ["--uds=/run/v.sock"]),
        ({"port": 8100}, "http://127.0.0.1:8100", ["--host=127.0.0.1", "--port=8100"]),
        ({"host": "0.0.0.0", "port": 8100}, "http://127.0.0.1:8100", ["--host=0.0.0.0", "--port=8100"]),
        ({"host": "::1"}, "http://[::1]:8000", ["--host=::1", "--port=8000"]),
    ],
)
def test_the_address_follows_the_flags(program, args, target, words):
    command = vllm_command(VllmSettings(model="m", args=args, executable=program), Path("/f"), {})
    assert command.target == target
    assert list(command.argv) == [program, "serve", "m", *words]


def test_a_key_stays_off_the_command_line_and_the_sidecars_own_secrets_away_from_the_engine(program):
    settings = VllmSettings(model="m", args={"api_key": "k1", "shutdown-timeout": 30}, executable=program)
    command = vllm_command(settings, Path("/f"), {"PATH": "/bin", "TAILRACE_HOP_KEY": "h"})
    assert "k1" not in " ".join(command.argv)
    assert command.env == {"PATH": "/bin", "VLLM_API_KEY": "k1"}
    assert (command.api_key, command.grace) == ("k1", 35.0)


@pytest.mark.parametrize(
    ("args", "environ", "key"),
    [
        ({"api-key": ["a", "b"]}, {}, "a"),
        ({}, {"VLLM_API_KEY": "e"}, "e"),
        ({}, {}, None),
    ],
)
def test_the_key_is_found_wherever_vllm_would_find_it(program, args, environ, key):
    assert vllm_command(VllmSettings(model="m", args=args, executable=program), Path("/f"), environ).api_key == key


def test_without_vllm_the_refusal_says_how_to_install_it(tmp_path):
    with pytest.raises(EngineError, match=r"pip install vllm"):
        vllm_command(VllmSettings(model="m"), tmp_path, {"PATH": str(tmp_path)})


@pytest.mark.parametrize("port", ["8000", 0, 70000, True])
def test_a_port_that_is_none_is_refused(program, port):
    with pytest.raises(EngineError, match="is not a port"):
        vllm_command(VllmSettings(model="m", args={"port": port}, executable=program), Path("/f"), {})


def test_a_socket_path_too_long_for_the_kernel_is_refused(program):
    with pytest.raises(EngineError, match="107 bytes"):
        vllm_command(VllmSettings(model="m", executable=program), Path("/" + "x" * 120), {})
