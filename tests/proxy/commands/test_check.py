"""`tailrace check`: what a file means, and what is wrong with one."""

from __future__ import annotations

import dataclasses
from importlib.resources import files
from pathlib import Path

import pytest
from tailrace.proxy.cli import main
from tailrace.proxy.limits import Limits, Timeouts

GOOD = """\
listen:
  - address: 127.0.0.1:8443
    trusted_proxies: [10.0.0.0/8, unix]
processes: 2
admin: {address: 0.0.0.0:9090, token: "${TOKEN}"}
models:
  chat: {pool: gpu, as: org/chat-7b}
  tuned: {pool: gpu, lora: mine}
default_model: chat
pools:
  gpu:
    workers: ["http://127.0.0.1:8000", unix:/run/engine.sock]
    api_key: ${KEY}
plugins:
  - route: {policy: round_robin}
    when: {model: [chat, tuned], stream: true}
    on_error: open
routes:
  - {path: /v1/custom/*, pool: gpu}
timeouts: {connect: 2s}
limits: {headers: 100}
heartbeat: off
"""
MEANT = """\
{file}: a gateway in 2 processes
listeners
  127.0.0.1:8443 (trusts 10.0.0.0/8, unix)
admin port
  0.0.0.0:9090 (with a token)
plugins, in the order of a request
  plugins[0]: route (when it fails, calls pass; only where model is chat or tuned; only where stream is true)
     phases: score_workers
     policy: round_robin
     prefix: 1KiB
     session_headers:
     - x-session-id
     session_fields:
     - prompt_cache_key
     - user
     load_factor: 1.25
     decay: 10s
     penalty: 5s
     region: null
     region_margin: 50ms
models
  chat -> gpu (served as org/chat-7b; the default)
  tuned -> gpu (adapter mine)
pools
  gpu (API key ***)
    http://127.0.0.1:8000
    unix:/run/engine.sock
further paths
  POST /v1/custom/* -> gpu
timeouts
  connect 2s, first_content_base 30s, first_content_per_mib 1m, unary 10m, gap 1m, total none, client_head 10s,
  client_body 30s, client_body_rate 1KiB, client_write 1m, idle 75s, unacknowledged 30s, upstream_idle 4s,
  upstream_age 5m, heartbeat off, stale 2s, pre_stop 5s, drain 10m
limits
  body 32MiB, head 64KiB, target 8KiB, headers 100, json_depth 128, body_memory 1GiB, expansion 200,
  connections 20000, connections_per_address 0
worth knowing
  pool 'gpu' has more than one worker: add `retry` and `rescue`, or what runs at one that dies fails with it
"""


@pytest.fixture(autouse=True)
def _secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "token-that-nobody-sees")
    monkeypatch.setenv("KEY", "key-that-nobody-sees")


def written(folder: Path, text: str) -> str:
    file = folder / "file.yaml"
    file.write_text(text)
    return str(file)


def test_summary(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(tmp_path, GOOD)
    assert main(["check", file]) == 0
    assert capsys.readouterr().out == MEANT.format(file=file)


def test_whole_file_is_shown_without_secrets_and_means_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", "--yaml", written(tmp_path, GOOD)]) == 0
    first = capsys.readouterr().out
    assert "nobody-sees" not in first
    assert "gap: 1m" in first
    assert main(["check", "--yaml", written(tmp_path, first)]) == 0
    assert capsys.readouterr().out == first


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("listen: 127.0.0.1:1\nmodels: {m: {pool: none}}\n", "2: models.m.pool: there is no pool 'none'"),
        ("listen: 127.0.0.1:1\nmodls: {}\n", "2: "),
        ("listen: [\n", ": not YAML"),
        ("role: edgy\n", "1: role: there is no role 'edgy'; known: gateway, worker"),
        ("role: gatway\n", "1: role: there is no role 'gatway'; did you mean 'gateway'? (known: gateway, worker)"),
        ("role: gatway\nlisten: 8080\nmodels: {}\n", "2: listen: '8080': expected HOST:PORT"),
        ("role: gatway\nlisten: 8080\nmodels: {}\n", "3: models: must not be empty"),
        ("role: edgy\nlisten: 8080\n", "2: listen: '8080': expected HOST:PORT"),
        ("role: wroker\nlisten: 127.0.0.1:1\n", "1: missing required key `engine`"),
        ("role: [gateway]\nlisten: 127.0.0.1:1\nmodels: {m: {workers: [http://a:1]}}\n", "1: role: "),
        ("listen: 127.0.0.1:1\nmodels: {m: {workers: ['http://a:1']}}\nplugins: [rute]\n", "did you mean 'route'?"),
        ("listen: nowhere\nmodels: {m: {workers: ['http://a:1']}}\n", "1: listen: 'nowhere'"),
        (
            "listen: 127.0.0.1:1\nmodels: {m: {workers: ['http://a:1']}}\nhop_key: x\n",
            "3: hop_key: give at least 16 characters: whoever reads one request on its way could guess a shorter key",
        ),
        ("a: ${NOT_SET_ANYWHERE}\n", "`NOT_SET_ANYWHERE` is not set"),
    ],
)
@pytest.mark.parametrize("command", ["check", "serve"])
def test_fault_is_one_line_with_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, text: str, fault: str
) -> None:
    file = written(tmp_path, text)
    assert main([command, file]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert [line for line in shown.err.splitlines() if line.startswith(f"{file}:") and fault in line]


def test_missing_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(tmp_path / "none.yaml")
    assert main(["check", file]) == 2
    assert capsys.readouterr().err == f"{file}:1: the file cannot be read: No such file or directory\n"


def test_chain_that_cannot_be_is_refused_at_the_list_of_plugins(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "misspelt_phase.py").write_text(
        "from dataclasses import dataclass\n"
        "from tailrace.proxy.plugin import Plugin\n"
        "@dataclass(frozen=True)\n"
        "class Config: pass\n"
        "class Misspelt(Plugin):\n"
        "    Config = Config\n"
        "    def on_opened(self, call): pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    text = "listen: 127.0.0.1:1\nmodels: {m: {workers: ['http://a:1']}}\nplugins: ['misspelt_phase:Misspelt']\n"
    file = written(tmp_path, text)
    assert main(["check", file]) == 2
    assert capsys.readouterr().err.startswith(f"{file}:3: plugin 'misspelt_phase:Misspelt' has a method 'on_opened'")


@pytest.mark.parametrize("name", ["gateway.yaml", "worker.yaml", "demo.yaml", "demo-worker.yaml"])
def test_files_of_the_package_are_good(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--elsewhere", str(files("tailrace.config").joinpath(name))]) == 0
    assert capsys.readouterr().out


def test_a_plugin_that_scores_the_same_calls_twice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "listen: 127.0.0.1:1\nmodels: {m: {workers: ['http://a:1']}}\nplugins:\n"
    told = ":5: plugins[1]: `route` scores the same calls as plugins[0]: their scores add up\n"
    assert main(["check", written(tmp_path, text + "- route: {}\n- route: {policy: random}\n")]) == 0
    assert told in capsys.readouterr().out
    apart = "- route: {}\n  when: {stream: true}\n- route: {}\n  when: {stream: false}\n- guard: {}\n- guard: {}\n"
    assert main(["check", written(tmp_path, text + apart)]) == 0
    assert "worth knowing" not in capsys.readouterr().out


def test_every_wait_and_size_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also those of a sidecar, whose own come with its engine."""
    text = "role: worker\nlisten: 127.0.0.1:1\nengine: {sim: {}}\n"
    assert main(["check", written(tmp_path, text)]) == 0
    shown = capsys.readouterr().out
    for field in (*dataclasses.fields(Timeouts), *dataclasses.fields(Limits)):
        assert f" {field.name} " in shown
    assert "heartbeat off, pre_stop 5s, drain 10m\n" in shown
    assert "queue_timeout: 10s\n" in shown
