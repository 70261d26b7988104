"""Nothing that `tailrace check` prints shows a credential, however it came into the file."""

# ruff: noqa: E501 -- a table reads best with one case a line

from __future__ import annotations

from pathlib import Path

import pytest
from tailrace.proxy.cli import main
from tailrace.proxy.config.secret import looks_secret, without_userinfo
from tailrace.proxy.headers import CREDENTIALS

SECRET = "s3cr3t-value"
GATEWAY = "listen: 127.0.0.1:1\nmodels: {m: {workers: ['http://127.0.0.1:2']}}\n"
WORKER = "role: worker\nlisten: 127.0.0.1:1\n"

GOOD = {
    "header set from the environment": GATEWAY + 'plugins: [{headers: {request: {set: {authorization: "Bearer ${SK}"}}}}]',
    "header set as it is": GATEWAY + f"plugins: [{{headers: {{request: {{set: {{X-Api-Key: {SECRET}}}}}}}}}]",
    "header added from a file": GATEWAY + 'plugins: [{headers: {answer: {add: {x-mark: "a ${file:secret}"}}}}]',
    "a variable that says so": GATEWAY + 'plugins: [{headers: {answer: {add: {x-mark: "a ${SOME_API_KEY}"}}}}]',
    "model from a file": GATEWAY + "default_model: m\npools: {}".replace("{}", "{p: {workers: ['http://a:1']}}")
    + "\nplugins: [{redact: {replacement: '${file:secret}'}}]",
    "worker from a file": GATEWAY.replace("'http://127.0.0.1:2'", "'http://${file:secret}:1'"),
    "name of the model": GATEWAY.replace("{workers", "{as: '${file:secret}', workers"),
    "argument": WORKER + f"engine: {{vllm: {{model: m, args: {{api-key: {SECRET}}}}}}}",
    "argument that is a list": WORKER + f"engine: {{vllm: {{model: m, args: {{api-key: [{SECRET}, b]}}}}}}",
    "argument in an argument": WORKER + f"engine: {{vllm: {{model: m, args: {{kv-config: {{token: {SECRET}}}}}}}}}",
    "variables": WORKER + f"engine: {{vllm: {{model: m, env: {{VLLM_API_KEY: {SECRET}, HF_TOKEN: {SECRET}}}}}}}",
    "password of a variable": WORKER + f"engine: {{vllm: {{model: m, env: {{STORE: 'redis://u:{SECRET}@h/0'}}}}}}",
    "keys of the simulated engine": WORKER + f"engine: {{sim: {{api_keys: [{SECRET}]}}}}",
}  # fmt: skip

BAD = {
    "worker": (GATEWAY.replace("http://", f"http://u:{SECRET}@"), "a worker's URL has neither user,"),
    "worker without a user": (GATEWAY.replace("http://", f"http://:{SECRET}@"), "a worker's URL has neither user,"),
    "worker with half a password": (GATEWAY.replace("http://", f"http://u:{SECRET}#b@"), "is no URL: its host or port"),
    "worker with a slash in it": (GATEWAY.replace("http://", f"http://u:{SECRET}/b@"), "is no URL: its host or port"),
    "engine": (WORKER + f"engine: {{url: 'http://u:{SECRET}@h'}}", "no path, query, fragment or user"),
    "engine, half": (WORKER + f"engine: {{url: 'http://u:{SECRET}#@h'}}", "its host or port makes no sense"),
    "a long one that is cut": (GATEWAY + f"heartbeat: https://user:{SECRET}{'x' * 80}@h/", "got \"https://***@h/\""),
    "from a file": (GATEWAY + "default_model: ${file:secret}", "there is no model '***'"),
    "of a variable": (GATEWAY + "default_model: ${SOME_API_KEY}", "there is no model '***'"),
    "admin": (GATEWAY + "admin: {address: '${file:secret}'}", "admin.address: '***'"),
}  # fmt: skip


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SK", SECRET)
    monkeypatch.setenv("SOME_API_KEY", SECRET)
    (tmp_path / "secret").write_text(SECRET)
    return tmp_path / "file.yaml"


@pytest.mark.parametrize("text", GOOD.values(), ids=GOOD)
@pytest.mark.parametrize("more", [[], ["--yaml"]], ids=["summary", "yaml"])
def test_a_good_file(file: Path, capsys: pytest.CaptureFixture[str], text: str, more: list[str]) -> None:
    file.write_text(text)
    assert main(["check", "--elsewhere", *more, str(file)]) == 0
    shown = capsys.readouterr()
    assert SECRET not in shown.out + shown.err
    assert "***" in shown.out


@pytest.mark.parametrize(("text", "fault"), BAD.values(), ids=BAD)
def test_a_faulty_file(file: Path, capsys: pytest.CaptureFixture[str], text: str, fault: str) -> None:
    file.write_text(text)
    assert main(["check", "--elsewhere", str(file)]) == 2
    told = capsys.readouterr().err
    assert SECRET[:6] not in told
    assert fault in told


SECRETS = [
    "api-key",
    "apiKey",
    "HF_TOKEN",
    "AWS_SECRET_ACCESS_KEY",
    "PGPASSWORD",
    "db_pass",
    "Authorization",
    "api_keys",
]
OTHERS = [
    "max-model-len",
    "tokenizer",
    "TOKENIZERS_PARALLELISM",
    "ssl-keyfile",
    "max_tokens_cap",
    "keyboard",
    "monkey",
    "",
]


def test_names() -> None:
    assert [name for name in SECRETS if not looks_secret(name)] == []
    assert [name for name in OTHERS if looks_secret(name)] == []
    assert [name for name in CREDENTIALS if not looks_secret(name.decode())] == []


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("http://u:p@h:1/x", "http://***@h:1/x"),
        ("'redis://:p@h' and postgres://u:p@q@h/db", "'redis://***@h' and postgres://***@h/db"),
        ("http://h:80/a@b http://h/a:b@c https://h?x=a@b", None),
        ("http://h:80 mail@a.example", None),
        ("http://u:a/b@h", "http://***@h"),
    ],
)
def test_user_and_password_of_a_url(text: str, masked: str | None) -> None:
    assert without_userinfo(text) == (masked or text)
