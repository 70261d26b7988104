"""The admin port: who may use it, and what it says of processes and workers."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fakes import CHAT, GOOD, PATH, RawClient, Upstream, run, yaml_for
from served import QUICK, Served, engine, serving
from tailrace.proxy.cli import main


async def command(*arguments: str) -> int:
    """A command in a thread: it blocks, and what it talks to runs beside it."""
    return await asyncio.to_thread(main, arguments)


async def drain(served: Served, action: str, body: bytes) -> Any:
    async with RawClient(served.admin) as client:
        return await client.post(f"/admin/workers/{action}", body)


def test_drained_worker_gets_no_calls_from_any_process(tmp_path: Path) -> None:
    async def body() -> None:
        healthy = engine(GOOD)
        async with Upstream(healthy) as one, Upstream(healthy) as two:
            async with serving(tmp_path, yaml_for(one, two, more=QUICK + "processes: 2\n")) as it:
                answer = await drain(it, "drain", b'{"worker": "%b"}' % one.url.encode())
                assert (answer.status, answer.json()) == (200, {"worker": one.url, "drained": True})
                await it.until(f"worker {one.url} gets no new calls, by the admin port")
                os.kill(it.processes[0], signal.SIGKILL)
                await it.until("it is replaced")
                while (await it.get("/readyz")).json()["processes"]["serving"] < 2:
                    pass
                for _ in range(8):
                    async with RawClient(it.url) as client:
                        assert (await client.post(PATH, CHAT)).status == 200
                assert not [request for request in one.requests if request.method == "POST"]
                shown = {worker["worker"]: worker for worker in (await it.get("/admin/workers")).json()["workers"]}
                assert [(shown[u.url]["drained"], shown[u.url]["eligible"]) for u in (one, two)] == [
                    (True, False),
                    (False, True),
                ]
                await drain(it, "drain", b'{"worker": "%b"}' % two.url.encode())
                unready = await it.get("/readyz")
                assert (unready.status, unready.json()["reasons"]) == (503, ["no worker takes calls"])
                await drain(it, "undrain", b'{"worker": "%b"}' % one.url.encode())
                await it.until(f"worker {one.url} may get calls again, by the admin port")
                async with RawClient(it.url) as client:
                    assert (await client.post(PATH, CHAT)).status == 200

    run(body())


def test_faulty_requests_are_told_in_json(tmp_path: Path) -> None:
    async def body() -> None:
        async with serving(tmp_path, yaml_for("http://127.0.0.1:1", more=QUICK)) as it:
            for answer, status, code in (
                (await it.get("/nowhere"), 404, "not_found"),
                (await it.get("/admin/workers/drain"), 405, "method_not_allowed"),
                (await drain(it, "drain", b"nonsense"), 400, "bad_request"),
                (await drain(it, "drain", b'{"worker": 3}'), 400, "bad_request"),
                (await drain(it, "drain", b'{"worker": "http://127.0.0.1:1", "limits": 5}'), 400, "bad_request"),
                (await drain(it, "drain", b'{"worker": "http://127.0.0.1:2"}'), 404, "unknown_worker"),
                (await drain(it, "undrain", b'{"worker": "no url"}'), 404, "unknown_worker"),
                (await drain(it, "drain", b"x" * 70_000), 413, "request_entity_too_large"),
            ):
                assert (answer.status, answer.json()["error"]["code"]) == (status, code)
            told = (await it.get("/")).json()["error"]["message"]
            assert told.startswith("There is no GET / on the admin port; there are: GET /healthz, ")
            assert "POST /admin/workers/drain" in told
            told = (await drain(it, "drain", b'{"worker": "http://127.0.0.1:1", "limits": 5}')).json()
            assert told["error"]["message"] == "There is no 'limits' here: send `worker`, and `limit`."
            assert not any(worker["drained"] for worker in (await it.get("/admin/workers")).json()["workers"])
            told = (await drain(it, "drain", b"x" * 70_000)).json()
            assert told["error"]["message"] == "The body is larger than 64 KiB."

    run(body())


def test_token_is_asked_for_everywhere_but_at_the_probes(tmp_path: Path) -> None:
    async def body() -> None:
        admin = f"admin: {{address: 'unix:{tmp_path / 'admin.sock'}', token: let-me-in}}\n"
        async with serving(tmp_path, yaml_for("http://127.0.0.1:1", more=QUICK + admin)) as it:
            for path in ("/metrics", "/admin/workers", "/admin/config", "/nowhere"):
                for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "let-me-in"}):
                    refused = await it.get(path, headers)
                    assert (refused.status, refused.json()["error"]["code"]) == (401, "unauthorized")
            assert (await it.get("/healthz")).status == 200
            assert (await it.get("/readyz")).json()["processes"]["serving"] == 1
            allowed = await it.get("/admin/config", {"authorization": "Bearer let-me-in"})
            assert allowed.status == 200
            assert "let-me-in" not in allowed.body.decode()

    run(body())


def test_metrics_are_the_sum_over_processes_and_outlive_them(tmp_path: Path) -> None:
    async def body() -> None:
        async with Upstream(engine(GOOD)) as upstream:
            async with serving(tmp_path, yaml_for(upstream, more=QUICK + "processes: 2\n")) as it:
                for _ in range(6):
                    async with RawClient(it.url) as client:
                        assert (await client.post(PATH, CHAT)).status == 200
                line = 'tailrace_requests_total{route="chat",model="m",outcome="completed",code="200"} 6'

                async def counted() -> None:
                    got = ""
                    try:
                        async with asyncio.timeout(8):
                            while line not in got:
                                got = (await it.get("/metrics")).body.decode()
                    except TimeoutError:
                        pytest.fail("\n".join(text for text in got.splitlines() if "requests_total{" in text))

                await counted()
                for process in it.processes:
                    os.kill(process, signal.SIGKILL)
                await counted()

    run(body())


def test_health_of_the_data_port_does_not_pass_through_plugins(tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "closed.py").write_text(
        "from dataclasses import dataclass\n"
        "from tailrace.proxy.plugin import Plugin\n"
        "from tailrace.proxy.fault import Reject\n"
        "@dataclass(frozen=True)\n"
        "class Config: pass\n"
        "class Closed(Plugin):\n"
        "    Config = Config\n"
        "    def on_open(self, call): raise Reject(401, 'no_key', 'No.')\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    async def body() -> None:
        yaml = yaml_for("http://127.0.0.1:1", plugins="['closed:Closed']", more=QUICK)
        async with serving(tmp_path, yaml) as it, RawClient(it.url) as client:
            for path, status in (("/healthz", 200), ("/v1/models", 401), ("/healthz", 200), ("/v1/models", 401)):
                assert (await client.get(path)).status == status
            assert (await client.get("/readyz")).status in (200, 503)
            await client.request("POST", "/healthz", b"{}")
            assert (await client.read_answer()).status == 401

    run(body())


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Callable[[], str]:
    return lambda: capsys.readouterr().out


def test_workers_command_lists_and_drains(
    tmp_path: Path, printed: Callable[[], str], capsys: pytest.CaptureFixture[str]
) -> None:
    async def body() -> None:
        async with Upstream(engine(GOOD)) as upstream:
            yaml = yaml_for(upstream, more=QUICK + "admin: {address: 127.0.0.1:0, token: let-me-in}\n")
            async with serving(tmp_path, yaml) as it:
                url = (await it.until("admin port", it.log)).rpartition(" ")[2]
                admin = ("--admin", url, "--token", "let-me-in")
                assert await command("workers", "list", *admin) == 0
                head, row = printed().splitlines()
                assert head.split()[:2] == ["WORKER", "POOLS"]
                assert row.split()[:4] == [upstream.url, "model:m", "static", "yes"]
                for limit, seconds in (((), None), (("--limit", "5"), 5), (("--limit", "1m30s"), 90)):
                    assert await command("workers", "drain", upstream.url, *limit, *admin) == 0
                    later = "" if seconds is None else f"; what runs there goes on elsewhere in {seconds} s, or ends"
                    assert printed() == f"{upstream.url} gets no new calls{later}\n"
                with pytest.raises(SystemExit):
                    await command("workers", "drain", upstream.url, "--limit", "soon", *admin)
                assert "'soon' is not a duration" in capsys.readouterr().err
                assert await command("workers", "list", *admin) == 0
                row = printed().splitlines()[1]
                assert row.split()[3] == "no"
                assert re.search(r" drained by an operator \((?:90|8\d(?:\.\d)?) s left\)$", row)
                assert await command("workers", "undrain", upstream.url, *admin) == 0
                capsys.readouterr()
                for given, whose in (((), "its"), (("--token", "wrong"), "another")):
                    assert await command("workers", "list", "--admin", url, *given) == 1
                    assert capsys.readouterr().err == (
                        f"tailrace: {url} asks for {whose} `token`: give it with --token or in $TAILRACE_ADMIN_TOKEN\n"
                    )
                assert await command("workers", "drain", "http://127.0.0.1:9", *admin) == 1
                capsys.readouterr()
                assert await command("workers", "list", "--admin", it.url) == 1
                assert capsys.readouterr().err == (
                    f"tailrace: {it.url} is the port of clients; give the address that stands under `admin`\n"
                )

    run(body())


def test_workers_command_on_a_unix_socket(tmp_path: Path, printed: Callable[[], str]) -> None:
    async def body() -> None:
        async with serving(tmp_path, yaml_for("http://127.0.0.1:1", more=QUICK)) as it:
            assert it.admin.startswith("unix:/")
            assert await command("workers", "drain", "http://127.0.0.1:1", "--admin", it.admin) == 0
            assert printed() == "http://127.0.0.1:1 gets no new calls\n"
            assert await command("workers", "list", "--admin", f"{it.admin}.none") == 1

    run(body())


def test_workers_command_without_a_gateway_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["workers", "list", "--admin", "http://127.0.0.1:1"]) == 1
    assert capsys.readouterr().err == "tailrace: no answer from http://127.0.0.1:1: Connection refused\n"
    for url in ("ftp://x", "http://h:port", "unix:x"):
        assert main(["workers", "list", "--admin", url]) == 1
        assert capsys.readouterr().err.endswith(
            "is no URL of an admin port, such as http://127.0.0.1:9090 or unix:/PATH\n"
        )
    assert main(["workers", "list", "--admin", "ftp://x"]) == 1


@pytest.mark.parametrize("answer", ['{"ok": true}', "[]", '{"workers": [{"worker": 1}]}', '{"workers": 3}', "null"])
@pytest.mark.parametrize("action", [["list"], ["drain", "http://127.0.0.1:1"]], ids=["list", "drain"])
def test_workers_command_and_another_server(capsys: pytest.CaptureFixture[str], answer: str, action: list[str]) -> None:
    async def body() -> None:
        text = f"HTTP/1.1 200 OK\r\ncontent-length: {len(answer)}\r\n\r\n{answer}".encode()
        async with Upstream(lambda conn, _: conn.send(text)) as other:
            assert await command("workers", *action, "--admin", other.url) == 1
            assert capsys.readouterr().err == (
                f"tailrace: {other.url} is no admin port of tailrace: its answer makes no sense\n"
            )

    run(body())
