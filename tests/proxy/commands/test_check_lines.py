"""`tailrace check` names every fault at once, each at the line of the entry concerned."""

from __future__ import annotations

from pathlib import Path

import pytest
from tailrace.proxy.cli import main

GATEWAY = """\
listen:
  - address: 127.0.0.1:8080
    trusted_proxies:
      - 10.0.0.0/8
      - office
models:
  a:
    pool: gpu
  b:
    as: org/b
    pool: gup
default_model: c
pools:
  gpu:
    workers:
      - http://127.0.0.1:8000
      - 127.0.0.1:8001
      - http://127.0.0.1:8000/
    colour: red
routes:
  - path: /v1/custom
    methods: [GET]
    pool: cpu
plugins:
  - access_log: {}
  - guard:
      modles: [a]
      max_tokens:
        cap: 10
        default: 20
    onerror: open
    budget_ms: 0
  - route:
      policy: fastest
    when:
      rout: [chat]
  - headers:
      answer:
        set:
          x-one: "1"
          content-length: "1"
  - guard: {}
    headers: {}
"""
GATEWAY_FAULTS = [
    "5: listen[0].trusted_proxies[1]: 'office' is no network; write 10.0.0.0/8, fd00::/8 or unix",
    "11: models.b.pool: there is no pool 'gup'; pools: gpu",
    "12: default_model: there is no model 'c'; models: a, b",
    "17: pools.gpu.workers[1]: '127.0.0.1:8001': expected http://HOST:PORT, https://HOST:PORT or unix:/PATH",
    "18: pools.gpu.workers[2]: 'http://127.0.0.1:8000/' is listed twice (http://127.0.0.1:8000)",
    "19: pools.gpu: unknown key `colour`, known here: workers, tls, api_key",
    "23: routes[0].pool: there is no pool 'cpu' for /v1/custom; pools: gpu",
    "27: plugins[1].guard: unknown key `modles`, did you mean `models`?",
    "30: plugins[1].guard.max_tokens.default: the default of 20 is above the cap of 10",
    "31: plugins[1]: unknown key `onerror`, did you mean `on_error`?",
    "32: plugins[1].budget_ms: must be above 0 ms, got 0",
    "34: plugins[2].route.policy: expected one of least_inflight, random, round_robin, tail, got \"fastest\"",
    "36: plugins[2].when: unknown key `rout`, did you mean `route`?",
    "41: plugins[3].headers.answer.set.content-length: 'content-length' cannot be changed: it describes the body, "
    "which stays as it is",
    "42: plugins[4]: a plugin entry names one plugin, got guard, headers; write `- name: {…}`",
]  # fmt: skip

WORKER = """\
role: worker
listen:
  - 127.0.0.1:8000
  - 10.0.0.1:8000
processes: 2
engine:
  vllm:
    model: m
    args:
      max-model-len: 8192
      --dtype: auto
  start:
    back_off: 2m
  pid: 5
blocked:
  - /tokenize
  - /none
hopkey: abc
"""
WORKER_FAULTS = [
    "4: listen[1]: '10.0.0.1:8000' can be reached by others: give the `hop_key` that its gateways hold",
    "5: processes: a sidecar is one process, which alone knows what its engine has to do; leave it out",
    "11: engine.vllm.args.--dtype: this is not a flag's name; write it without dashes and value",
    "13: engine.start.back_off: `back_off` is above `back_off_limit`",
    "14: engine.pid: `pid` and `pid_file` go with `url`",
    "17: blocked[1]: '/none' is not served anyway; paths: ",
    "18: unknown key `hopkey`, did you mean `hop_key`?",
]


@pytest.mark.parametrize(
    ("text", "faults"), [(GATEWAY, GATEWAY_FAULTS), (WORKER, WORKER_FAULTS)], ids=["gateway", "worker"]
)
def test_every_fault_is_told_at_the_line_of_its_entry(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, faults: list[str]
) -> None:
    file = tmp_path / "file.yaml"
    file.write_text(text)
    assert main(["check", "--elsewhere", str(file)]) == 2
    told = [line.removeprefix(f"{file}:") for line in capsys.readouterr().err.splitlines()]
    assert len(told) == len(faults)
    for line, fault in zip(told, faults, strict=True):
        assert line.startswith(fault)


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        (
            "plugins:\n- redact:\n    patterns: [emial]\n    own:\n      x: (a+)+\n",
            ["5: plugins[0].redact.patterns[0]: expected one of email,", "7: plugins[0].redact.own.x: "],
        ),
        (
            "pools: {a: {workers: []}}\nplugins: [{guard: {models: 1}}, {route: {}, when: {model: [n]}}]\n"
            "default_model: o\nroutes: [{path: /x, pool: b}]\n",
            [
                "2: models.m.pool: there is no pool 'x'; pools: a",
                "3: pools.a.workers: must not be empty",
                "4: plugins[0].guard.models: expected a list, got 1",
                "4: plugins[1].when.model[0]: there is no model 'n'",
                "5: default_model: there is no model 'o'",
                "6: routes[0].pool: there is no pool 'b' for /x; pools: a",
            ],
        ),
        (
            "pools: {a: {workers: [http://127.0.0.1:1]}}\nplugins:\n- fallback:\n    to:\n    - pool: a\n"
            "    - {pool: sapre}\n- breaker: {degraded: [{pool: b}]}\n",
            [
                "2: models.m.pool: there is no pool 'x'; pools: a",
                "8: plugins[0].fallback.to[1].pool: there is no pool 'sapre'; pools: a",
                "9: plugins[1].breaker.degraded[0].pool: there is no pool 'b'; pools: a",
            ],
        ),
        (
            "plugins:\n- deadline:\n    budgets:\n    - {total: 1s, model: [m, lama]}\n    - {total: -1, model: [o]}\n"
            "- admission: {pools: {'model:m': {}, nosuch: {priority: true}}}\n- deadline: {budgets: 1}\n"
            "- deadline: {budgets: [{total: 1s, model: [n]}]}\n",
            [
                "6: plugins[0].deadline.budgets[0].model[1]: there is no model 'lama'; an adapter has to stand under",
                "7: plugins[0].deadline.budgets[1].model[0]: there is no model 'o'",
                "7: plugins[0].deadline.budgets[1].total: must not be negative",
                "8: plugins[1].admission.pools.nosuch: there is no pool 'nosuch'; pools: model:m",
                "9: plugins[2].deadline.budgets: expected a list, got 1",
                "9: plugins[2]: `deadline` stands at plugins[0], too",
                "10: plugins[3].deadline.budgets[0].model[0]: there is no model 'n'",
                "10: plugins[3]: `deadline` stands at plugins[0], too",
            ],
        ),
        (
            "plugins:\n- rute\n- route: {}\n  when: {route: [chats]}\n",
            ["2: models.m.pool: there is no pool 'x'", "4: plugins[0]: there is no plugin 'rute'",
             "6: plugins[1].when.route[0]: there is no route 'chats'"],
        ),
    ],
    ids=["fields of a plugin", "pools without workers", "pools elsewhere", "names in plugins", "an unknown plugin"],
)  # fmt: skip
def test_a_fault_hides_no_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, faults: list[str]
) -> None:
    file = tmp_path / "file.yaml"
    model = "{workers: ['http://127.0.0.1:1']}" if "redact" in text or "deadline" in text else "{pool: x}"
    file.write_text(f"listen: 127.0.0.1:8080\nmodels: {{m: {model}}}\n{text}")
    assert main(["check", str(file)]) == 2
    told = [line.removeprefix(f"{file}:") for line in capsys.readouterr().err.splitlines()]
    assert [line[: len(fault)] for line, fault in zip(told, faults, strict=True)] == faults
