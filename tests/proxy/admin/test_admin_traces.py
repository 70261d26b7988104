"""`tailrace trace` and the admin port behind it: one call's waterfall, from whichever process served it."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest
from fakes import CHAT, GOOD, PATH, RawClient, Upstream, json_answer, run, sse_answer, stream_of, yaml_for
from served import QUICK, Served, engine, serving
from tailrace.proxy.cli import main

STREAM = {**CHAT, "stream": True}


async def command(*arguments: str) -> int:
    return await asyncio.to_thread(main, arguments)


async def asked(it: Served, body: object = CHAT) -> str:
    async with RawClient(it.url) as client:
        return (await client.post(PATH, body)).header("x-request-id") or ""


def test_a_call_is_found_in_whichever_process_served_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def body() -> None:
        async with Upstream(engine(sse_answer(stream_of(["a", "b"])))) as upstream:
            async with serving(tmp_path, yaml_for(upstream, more=QUICK + "processes: 2\n")) as it:
                ids = [await asked(it, STREAM) for _ in range(8)]
                for name in ids:
                    found = (await it.get(f"/admin/traces/{name}")).json()["calls"]
                    assert [call["request_id"] for call in found] == [name]
                    names = [piece["name"] for piece in found[0]["pieces"]]
                    assert names[0] == "call"
                    assert {"attempt 1", "prefill"} <= set(names)
                assert await command("trace", "--admin", it.admin, ids[0]) == 0
                text = capsys.readouterr().out
                assert text.startswith(f"{ids[0]}  chat m (stream)  200 completed in ")
                assert f"first {upstream.url} won 200" in text
                listed = (await it.get("/admin/traces?of=latest&limit=3")).json()["calls"]
                assert [call["request_id"] for call in listed] == ids[:-4:-1]

    run(body())


def test_what_failed_and_what_was_slow_is_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def body() -> None:
        broken = json_answer({"error": {"message": "no", "code": 500}}, status=500)
        async with Upstream(engine(GOOD, broken, GOOD)) as upstream:
            async with serving(tmp_path, yaml_for(upstream, more=QUICK)) as it:
                ids = [await asked(it) for _ in range(3)]
                assert await command("trace", "--admin", it.admin, "--errors") == 0
                heading, only = capsys.readouterr().out.splitlines()
                assert heading.startswith("REQUEST")
                assert only.startswith(ids[1])
                assert only.endswith("http_error (engine)")
                assert await command("trace", "--admin", it.admin, "--slowest", "2") == 0
                assert len(capsys.readouterr().out.splitlines()) == 3

    run(body())


def test_what_is_not_known_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def body() -> None:
        async with serving(tmp_path, yaml_for("http://127.0.0.1:1", more=QUICK)) as it:
            assert await command("trace", "--admin", it.admin, "req_none") == 1
            assert "Nothing is remembered of 'req_none'" in capsys.readouterr().err
            assert await command("trace", "--admin", it.admin, "--latest") == 0
            assert capsys.readouterr().out == "no such call is remembered\n"
            for query, told in (
                ("of=best", "`of` is one of"),
                ("limit=0", "`limit` is a number"),
                ("limit=x", "`limit`"),
                ("limit=" + "1" * 5000, "`limit`"),
            ):
                answer = await it.get(f"/admin/traces?{query}")
                assert (answer.status, told in answer.json()["error"]["message"]) == (400, True)

    run(body())


def test_a_process_that_does_not_answer_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def body() -> None:
        async with Upstream(engine(GOOD)) as upstream:
            async with serving(tmp_path, yaml_for(upstream, more=QUICK + "processes: 2\n")) as it:
                name = await asked(it)
                stuck = (await it.get(f"/admin/traces/{name}")).json()["calls"][0]["process"]
                pids = it.processes
                os.kill(pids[stuck], signal.SIGSTOP)
                try:
                    assert await command("trace", "--admin", it.admin, name) == 1
                    told = f"No answer came from process {stuck}: what is remembered there is not shown.\n"
                    assert capsys.readouterr().err.endswith(told)
                    assert await command("trace", "--admin", it.admin, "--latest") == 0
                    assert capsys.readouterr() == ("no such call is remembered\n", told)
                finally:
                    os.kill(pids[stuck], signal.SIGCONT)
                assert await command("trace", "--admin", it.admin, name) == 0
                assert capsys.readouterr().err == ""

    run(body())


def test_nobody_reads_them_without_the_token(tmp_path: Path) -> None:
    async def body() -> None:
        admin = f"admin: {{address: 'unix:{tmp_path / 'admin.sock'}', token: let-me-in}}\n"
        async with serving(tmp_path, yaml_for("http://127.0.0.1:1", more=QUICK + admin)) as it:
            for path in ("/admin/traces", "/admin/traces/req_1"):
                assert (await it.get(path)).status == 401

    run(body())


def test_it_can_be_switched_off(tmp_path: Path) -> None:
    async def body() -> None:
        async with Upstream(engine(GOOD)) as upstream:
            async with serving(tmp_path, yaml_for(upstream, more=QUICK + "traces: {calls: 0}\n")) as it:
                name = await asked(it)
                assert (await it.get(f"/admin/traces/{name}")).status == 404

    run(body())


def test_an_id_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["trace", ""])
    assert "argument ID: it is empty" in capsys.readouterr().err


@pytest.mark.parametrize("count", ["0", "101", "x"])
def test_a_number_that_is_none(count: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["trace", "--slowest", count])
    assert "is no number from 1 to 100" in capsys.readouterr().err
