"""What a file names outside itself is looked for before anything is opened, and `serve` says the same as `check`."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from certificates import Authority
from tailrace.proxy.cli import main

Told = Callable[[str], list[str]]

GATEWAY = "listen: 127.0.0.1:8080\nmodels:\n  m: {workers: ['https://127.0.0.1:1']}\n"
WORKER = "role: worker\nlisten: 127.0.0.1:8000\n"


@pytest.fixture
def told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Told:
    """The faults of a file, which are the same for `check` and `serve`, as `line: text`."""
    file = tmp_path / "file.yaml"

    def ask(text: str) -> list[str]:
        file.write_text(text)
        assert main(["check", str(file)]) == 2
        checked = capsys.readouterr()
        assert checked.out == ""
        assert main(["serve", str(file)]) == 2
        served = capsys.readouterr()
        assert (served.out, served.err) == ("", checked.err)
        return [line.removeprefix(f"{file.name}:") for line in checked.err.replace(f"{tmp_path}/", "").splitlines()]

    return ask


def listening(tls: str) -> str:
    return f"listen:\n- address: 127.0.0.1:8443\n  tls:\n{tls}models: {{m: {{workers: ['http://127.0.0.1:1']}}}}\n"


@pytest.mark.parametrize("kind", ["file", "folder", "link"])
def test_a_unix_socket_where_something_else_stands(told: Told, tmp_path: Path, kind: str) -> None:
    place = tmp_path / "here"
    match kind:
        case "file":
            place.write_text("precious")
        case "folder":
            place.mkdir()
        case "link":
            place.symlink_to("nowhere")
    text = f"listen: ['unix:{place}']\nadmin: unix:{place}2\nmodels: {{m: {{workers: ['http://127.0.0.1:1']}}}}\n"
    assert told(text) == ["1: listen[0]: here exists and is no socket"]
    place.rename(f"{place}2")
    assert told(text) == ["2: admin: here2 exists and is no socket"]


def test_a_unix_socket_in_a_folder_that_nobody_may_write(
    told: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f"listen: ['unix:{tmp_path}/sealed/socket']\nmodels: {{m: {{workers: ['http://127.0.0.1:1']}}}}\n"
    assert told(text) == ["1: listen[0]: there is no folder sealed"]
    sealed = tmp_path / "sealed"
    sealed.write_text("")
    assert told(text) == ["1: listen[0]: there is no folder sealed"]
    sealed.unlink()
    sealed.mkdir()
    access = os.access
    # Permissions do not keep the superuser, who may run this, from anything.
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != sealed and access(path, mode))
    assert told(text) == ["1: listen[0]: the folder sealed cannot be written by this user"]


def test_a_socket_that_is_there_may_be_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
        file = tmp_path / "file.yaml"
        file.write_text(f"listen: 'unix:{tmp_path}/socket'\nmodels: {{m: {{workers: ['http://127.0.0.1:1']}}}}\n")
        assert main(["check", str(file)]) == 0
    assert capsys.readouterr().err == ""


def test_tls_files_that_are_not_there(told: Told, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    assert told(listening("    cert: none.pem\n    key: folder\n    client_ca: ca.pem\n")) == [
        "4: listen[0].tls.cert: none.pem cannot be read: no such file or directory",
        "5: listen[0].tls.key: folder cannot be read: is a directory",
        "6: listen[0].tls.client_ca: ca.pem cannot be read: no such file or directory",
    ]


def test_tls_files_that_are_no_such_thing(told: Told, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    one, other = authority.issue("one"), authority.issue("other")
    (tmp_path / "junk").write_text("junk")
    assert told(listening("    cert: one.pem\n    key: other.key\n")) == [
        "5: listen[0].tls.key: other.key does not belong to the certificate in one.pem"
    ]
    assert told(listening("    cert: junk\n    key: one.key\n    client_ca: junk\n")) == [
        "4: listen[0].tls.cert: junk holds no PEM certificate",
        "6: listen[0].tls.client_ca: junk holds no PEM certificate",
    ]
    assert told(listening("    cert: one.pem\n    key: junk\n")) == [
        "5: listen[0].tls.key: junk holds no PEM private key"
    ]
    assert one.cert != other.cert


def test_an_encrypted_key(told: Told, tmp_path: Path) -> None:
    pair = Authority(tmp_path).issue("one", password=b"secret")
    assert told(listening(f"    cert: one.pem\n    key: {pair.key}\n")) == [
        "5: listen[0].tls.key: one.key: the private key is encrypted; only plain PEM keys can be used"
    ]


def test_tls_files_for_workers(told: Told, tmp_path: Path) -> None:
    text = (
        "listen: 127.0.0.1:8080\nmodels: {m: {pool: p}}\npools:\n  p:\n    workers: ['https://127.0.0.1:1']\n    tls:\n"
    )
    assert told(text + "      ca: none.pem\n      cert: c.pem\n      key: c.key\n") == [
        "7: pools.p.tls.ca: none.pem cannot be read: no such file or directory",
        "8: pools.p.tls.cert: c.pem cannot be read: no such file or directory",
        "9: pools.p.tls.key: c.key cannot be read: no such file or directory",
    ]


def test_the_folder_of_a_log_file(told: Told, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    plugins = "plugins:\n- access_log:\n    queue: 5\n    file: {file}\n"
    assert told(GATEWAY + plugins.format(file="none/access.log")) == [
        "7: plugins[0].access_log.file: there is no folder none"
    ]
    assert told(GATEWAY + plugins.format(file="folder")) == ["7: plugins[0].access_log.file: folder is a folder"]


def test_the_folder_of_a_unix_socket(told: Told, tmp_path: Path) -> None:
    assert told(GATEWAY.replace("127.0.0.1:8080", f"unix:{tmp_path}/none/s") + "admin: unix:/none/here/a\n") == [
        "1: listen: there is no folder none",
        "4: admin: there is no folder /none/here",
    ]


@pytest.mark.parametrize(
    ("listen", "admin", "line"),
    [
        ("127.0.0.1:9090", "", "1: listen: '127.0.0.1:9090' is the admin port's, too: give"),
        ("0.0.0.0:9999", "admin: 127.0.0.1:9999\n", "1: listen: '0.0.0.0:9999' is the admin port's, too: give"),
        ("['[::]:9', '[::1]:8']", "admin: {address: '[::1]:8'}\n", "1: listen[1]: '[::1]:8' is the admin port's, too"),
        ("[127.0.0.1:8, 127.0.0.1:8]", "", "1: listen[1]: '127.0.0.1:8' is taken by a listener above"),
    ],
)
def test_an_address_that_is_wanted_twice(told: Told, listen: str, admin: str, line: str) -> None:
    (fault,) = told(GATEWAY.replace("127.0.0.1:8080", listen) + admin)
    assert fault.startswith(line)


def test_addresses_that_go_together(tmp_path: Path) -> None:
    file = tmp_path / "file.yaml"
    for listen, admin in (("127.0.0.1:0", "127.0.0.1:0"), ("127.0.0.1:9", "'[::1]:9'"), ("127.0.0.1:9", "127.0.0.2:9")):
        file.write_text(GATEWAY.replace("127.0.0.1:8080", listen) + f"admin: {admin}\n")
        assert main(["check", str(file)]) == 0


def test_an_engine_that_is_not_installed(told: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert told(WORKER + "engine:\n  vllm:\n    model: org/m\n") == [
        "5: engine.vllm.model: vllm is not installed here: `pip install vllm` beside tailrace, or set `executable`"
    ]
    assert told(WORKER + "engine:\n  vllm:\n    model: ./none\n    executable: vlm\n") == [
        "5: engine.vllm.model: there is no folder ./none",
        "6: engine.vllm.executable: there is no program 'vlm' here (`pip install vllm` brings vllm)",
    ]


def test_arguments_that_no_engine_can_have(told: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "vllm").write_text("#!/bin/sh\n")
    (tmp_path / "vllm").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert told(WORKER + "engine:\n  vllm:\n    model: m\n    args:\n      port: 0\n      dtype:\n") == [
        "7: engine.vllm.args.port: the engine's port is not a port: 0",
        "8: engine.vllm.args.dtype: no value; true gives the bare flag",
    ]


def test_a_condition_that_no_call_meets(told: Told) -> None:
    plugins = (
        "plugins:\n- route: {}\n  when:\n    stream: true\n    model: [m, n]\n    route:\n    - chat\n    - chats\n"
    )
    model, route = told(GATEWAY + plugins)
    assert model == (
        "8: plugins[0].when.model[1]: there is no model 'n'; an adapter has to stand under `models` to be named here"
    )
    assert route.startswith("11: plugins[0].when.route[1]: there is no route 'chats'; routes: chat, completions, ")


def test_a_file_for_another_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    file = tmp_path / "file.yaml"
    file.write_text(WORKER + "engine: {vllm: {model: /none}}\nplugins: [access_log: {file: /none/log}]\n")
    assert main(["check", "--elsewhere", str(file)]) == 0
    assert main(["check", str(file)]) == 2
