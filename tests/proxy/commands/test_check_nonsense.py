"""What cannot be meant is refused where it stands, in words that say what to write."""

# ruff: noqa: E501 -- a table reads best with one case a line

from __future__ import annotations

from pathlib import Path

import pytest
from tailrace.proxy.cli import main

MODELS = "models:\n  m: {workers: ['http://127.0.0.1:1']}\n"
GATEWAY = "listen: 127.0.0.1:8080\n" + MODELS
WORKER = "role: worker\nlisten: 127.0.0.1:8000\n"
LONG = "/run/" + 103 * "x"
SIM = WORKER + "engine: {sim: {}}\n"
POOL = GATEWAY + "pools: {p: {workers: ['http://127.0.0.1:2']}}\n"


def route(path: str, methods: str = "[POST]") -> str:
    return f"{POOL}routes: [{{path: '{path}', pool: p, methods: {methods}}}]\n"


CASES = {
    "a body above all bodies": (GATEWAY + "limits: {body: 2GiB}", "4: limits.body: `body` is above `body_memory`, which all bodies share"),
    "stale before the next report": (GATEWAY + "stale: 1ms", '4: stale: must be above 500ms, got "1ms"'),
    "a model without a name": (GATEWAY + "  '': {workers: ['http://127.0.0.1:1']}", "4: models: must not be empty, got empty text"),
    "as nothing": (GATEWAY.replace("{workers", "{as: '', workers"), '3: models.m.as: must not be empty, got empty text'),
    "lora of no name": (GATEWAY.replace("{workers", "{lora: '', workers"), '3: models.m.lora: must not be empty, got empty text'),
    "a header of the connection": (GATEWAY + "forward_headers: [x-api-key, Connection]", "4: forward_headers[1]: 'Connection' is about one connection, or the relay's own to say: it cannot be forwarded"),
    "weight of nothing": (GATEWAY + "plugins:\n- guard: {}\n  weight: 2", "6: plugins[0]: plugin 'guard' scores no workers: there is nothing that a weight could weigh"),
    "replacement of nothing": (GATEWAY + "plugins: [redact: {replacement: '<{nam}>'}]", "4: plugins[0].redact.replacement: {nam} stands for nothing: {name} is the one that is replaced"),
    "an option beside its plugin": (GATEWAY + "plugins:\n- retry: {}\n  attempts: 2", "6: plugins[0]: unknown key `attempts` beside a plugin: indent it further to make it an option of `retry`"),
    "an option of nobody": (GATEWAY + "plugins:\n- retry: {}\n  atempts: 2", "6: plugins[0]: unknown key `atempts`, known beside a plugin: budget_ms, on_error, weight, when"),
    "negative time": (WORKER + "engine: {sim: {ttft_ms: -5}}", "3: engine.sim.ttft_ms: must be at least 0 ms, got -5"),
    "negative length": (WORKER + "engine: {sim: {answer_tokens: -3}}", "3: engine.sim.answer_tokens: must be at least 0, got -3"),
    "no room": (WORKER + "engine: {sim: {max_num_seqs: 0}}", "3: engine.sim.max_num_seqs: must be at least 1, got 0"),
    "a fault of no status": (WORKER + "engine: {sim: {faults: [{fail: error, status: 200}]}}", "3: engine.sim.faults[0].status: must be at least 400, got 200"),
    "no process": (WORKER + "engine: {url: 'http://127.0.0.1:1', pid: 99999999}", "3: engine.pid: must be at most 4194304, got 99999999"),
    "a key beside sim": (WORKER + "engine:\n  sim: {}\n  api_key: k", "5: engine.api_key: `api_key` goes with `url`; a launched engine's key is in its args or env"),
    "itself": (GATEWAY.replace("127.0.0.1:1'", "127.0.0.1:8080'"), "3: models.m.workers[0]: 'http://127.0.0.1:8080' is this gateway's own listener"),
    "itself by name": (GATEWAY.replace("127.0.0.1:1'", "localhost:8080'"), "3: models.m.workers[0]: 'http://localhost:8080' is this gateway's own listener"),
    "itself on any address": (GATEWAY.replace("n: 127.0.0.1", "n: 0.0.0.0").replace("127.0.0.1:1'", "127.0.0.1:8080'"), "3: models.m.workers[0]: 'http://127.0.0.1:8080' is this gateway's own listener"),
    "itself in a pool": (POOL.replace(":2'", ":8080'"), "4: pools.p.workers[0]: 'http://127.0.0.1:8080' is this gateway's own listener"),
    "itself on a socket": (GATEWAY.replace("127.0.0.1:8080", "unix:/tmp/S").replace("http://127.0.0.1:1", "unix:/tmp/S"), "3: models.m.workers[0]: 'unix:/tmp/S' is this gateway's own listener"),
    "a sidecar's engine is itself": (WORKER + "engine: {url: 'http://127.0.0.1:8000'}", "3: engine.url: 'http://127.0.0.1:8000' is this sidecar's own listener"),
    "a path of health": (route("/readyz"), "5: routes[0].path: '/readyz' is served here, with the plugins: it cannot be passed through"),
    "a path of inference": (route("/v1/chat/completions"), "5: routes[0].path: '/v1/chat/completions' is served here, with the plugins: it cannot be passed through"),
    "one of the models": (route("/v1/models/m", "[GET]"), "5: routes[0].path: '/v1/models/m' is served here, with the plugins: it cannot be passed through"),
    "all responses": (route("/v1/responses/*"), "5: routes[0].path: '/v1/responses/*' is served here, with the plugins: it cannot be passed through"),
    "a small method": (route("/x", "[get]"), '5: routes[0].methods[0]: expected one of GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS, got "get", did you mean `GET`?'),
    "no method": (route("/x", "[]"), "5: routes[0].methods: must not be empty"),
    "a path with a query": (route("/x?y=1"), "5: routes[0].path: '/x?y=1': expected /path or /path/*"),
    "a path twice": (POOL + "routes:\n- {path: /x, pool: p}\n- {path: /x, pool: p, methods: [GET, POST]}", "7: routes[1].methods[1]: POST /x stands here twice"),
    "a scheme": (GATEWAY.replace("127.0.0.1:8080", "http://127.0.0.1:8080"), "1: listen: 'http://127.0.0.1:8080': no scheme stands here, just HOST:PORT; `tls` beside it makes it HTTPS"),
    "a large port": (GATEWAY.replace(":8080", ":99999"), "1: listen: '127.0.0.1:99999': a port is at most 65535"),
    "no admin": (GATEWAY + "admin: false", "4: admin: 'false': write `off` for no admin port"),
    "heartbeat no": (GATEWAY + "heartbeat: no", '4: heartbeat: expected a duration such as 5 (seconds), "250ms", "5s", "2m" or "1h", or off, got "no"'),
    "no listener": (MODELS + "listen:", "3: listen: expected HOST:PORT, [IPv6]:PORT or unix:/absolute/path, or a mapping, or a list of such, got nothing"),
    "a list of admin ports": (GATEWAY + "admin: [off]", "4: admin: expected HOST:PORT, or a mapping with the keys address, token, got a list"),
    "a header of two words": (GATEWAY + "forward_headers: [x-a, bad header]", "4: forward_headers[1]: 'bad header' cannot be the name of a header or a query parameter"),
    "a header with a colon": (GATEWAY + "forward_headers: ['x:y']", "4: forward_headers[0]: 'x:y' cannot be the name of a header or a query parameter"),
    "a header of no name": (GATEWAY + "forward_headers: ['']", "4: forward_headers[0]: '' cannot be the name of a header or a query parameter"),
    "a long socket": (f"listen: unix:{LONG}\n{MODELS}", f"1: listen: 'unix:{LONG}': a Unix socket's path has at most 107 bytes, and this one has 108"),
    "a long socket for the admin port": (f"{GATEWAY}admin: unix:{LONG}", f"4: admin: 'unix:{LONG}': a Unix socket's path has at most 107 bytes, and this one has 108"),
    "a long socket of a worker": (f"{GATEWAY}pools:\n  q:\n    workers: [unix:{LONG}]", f"6: pools.q.workers[0]: 'unix:{LONG}': a Unix socket's path has at most 107 bytes, and this one has 108"),
    "a long socket of a simulated engine": (f"{WORKER}engine: {{sim: {{uds: {LONG}}}}}", "3: engine.sim.uds: a Unix socket's path has at most 107 bytes, and this one has 108"),
    "a simulated model of no name": (WORKER + "engine: {sim: {model: ''}}", "3: engine.sim.model: must not be empty, got empty text"),
    "a key that is a word": (GATEWAY + "hop_key: short", "4: hop_key: give at least 16 characters: whoever reads one request on its way could guess a shorter key"),
    "blocked without a slash": (SIM + "blocked: [tokenize]", "4: blocked[0]: 'tokenize' is not served anyway; write /tokenize"),
}  # fmt: skip


def faults(folder: Path, text: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    file = folder / "file.yaml"
    file.write_text(text)
    code = main(["check", "--elsewhere", str(file)])
    shown = capsys.readouterr()
    assert (code == 0) == (not shown.err)
    return [line.removeprefix(f"{file}:") for line in shown.err.splitlines()]


@pytest.mark.parametrize(("text", "fault"), CASES.values(), ids=CASES)
def test_it_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, fault: str) -> None:
    assert faults(tmp_path, text, capsys) == [fault]


FINE = {
    "workers elsewhere": GATEWAY.replace("n: 127.0.0.1", "n: 0.0.0.0").replace("127.0.0.1:1'", "10.0.0.11:8080'"),
    "another port": GATEWAY.replace("127.0.0.1:1'", "127.0.0.1:8081'"),
    "another protocol": GATEWAY.replace("n: 127.0.0.1", "n: 0.0.0.0").replace("127.0.0.1:1'", "[::1]:8080'"),
    "any port": GATEWAY.replace(":8080", ":0").replace("127.0.0.1:1'", "127.0.0.1:80'"),
    "heartbeat off": GATEWAY + "heartbeat: off",
    "everything below a path": route("/v1/*", "[GET, POST]"),
    "what else is refused": route("/v1/files/*"),
    "weight of scores": GATEWAY + "plugins: [{route: {}, weight: 2}]",
    "credentials and others": GATEWAY + "forward_headers: [x-api-key, api_key, x-mine]",
    "replacements": GATEWAY + "plugins: [{redact: {replacement: '<{name}: {name}>'}}, {redact: {replacement: '#'}}]",
}


@pytest.mark.parametrize("text", FINE.values(), ids=FINE)
def test_it_is_no_nonsense(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    assert faults(tmp_path, text, capsys) == []


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ("", []),
        ("pools: {p: {workers: ['http://a:1', 'http://b:1']}}\n", ["no plugin chooses workers (`route` does): each call goes to one at random"]),
        ("pools: {p: {workers: ['http://a:1', 'http://b:1']}}\nplugins: [route]\n", []),
        ("plugins: [guard: {models: [m, 'm*', n, 'n*']}]\n", [f"plugins[0]: guard allows '{name}', which no name under `models` matches: only an adapter can be meant" for name in ("n", "n*")]),
        ("plugins: [guard: {models: []}]\n", ["plugins[0]: guard allows no model at all"]),
    ],
    ids=["one worker", "several", "several, with route", "guard", "guard of nothing"],
)  # fmt: skip
def test_what_is_worth_knowing(tmp_path: Path, capsys: pytest.CaptureFixture[str], more: str, told: list[str]) -> None:
    file = tmp_path / "file.yaml"
    file.write_text(GATEWAY + more)
    assert main(["check", str(file)]) == 0
    _, _, notes = capsys.readouterr().out.partition("worth knowing\n")
    assert [line.strip().removeprefix(f"{file}:4: ") for line in notes.splitlines()] == told
