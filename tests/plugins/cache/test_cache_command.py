"""`tailrace cache` and the admin port: answers of every process are counted and thrown away."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from fakes import CHAT, PATH, RawClient, Upstream, chat_answer, json_answer, run, yaml_for
from served import QUICK, engine, serving
from tailrace.plugins.cache.command import _added, main

COLD = {**CHAT, "temperature": 0}


def test_every_process_is_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def body() -> None:
        async with Upstream(engine(json_answer(chat_answer("kept")))) as upstream:
            yaml = yaml_for(upstream, plugins="[cache]", more=QUICK + "processes: 2\n")
            async with serving(tmp_path, yaml) as it:

                async def told(*words: str) -> str:
                    assert await asyncio.to_thread(main, [*words, "--admin", it.admin]) == 0
                    return capsys.readouterr().out

                entries = 0
                for number in range(24):
                    async with RawClient(it.url) as client:
                        answer = await client.post(PATH, {**COLD, "max_tokens": number + 1})
                        entries += answer.header("x-tailrace-cache") == "miss"
                assert f"entries: {entries}\n" in await told("stats")
                assert await told("purge", "--model", "other") == "purged: 0\n"
                assert await told("purge", "--model", "m") == f"purged: {entries}\n"
                assert "entries: 0\n" in await told("stats")

    run(body(), limit=60)


def test_what_makes_no_sense_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def body() -> None:
        async with Upstream(engine(json_answer(chat_answer("kept")))) as upstream:
            async with serving(tmp_path, yaml_for(upstream, plugins="[route]", more=QUICK)) as it:

                async def told(*words: str) -> str:
                    assert await asyncio.to_thread(main, [*words, "--admin", it.admin]) == 1
                    return capsys.readouterr().err

                assert "No plugin 'cache' here" in await told("stats")
                assert "No plugin 'cache' here" in await told("purge", "--scope", "s")
                assert "say which" in await told("purge")
                assert "leaves nothing to choose" in await told("purge", "--all", "--model", "m")
                async with RawClient(it.admin) as client:
                    assert (await client.post("/admin/plugins/cache/purge", b"[1]")).status == 400

    run(body(), limit=60)


def test_numbers_of_processes_are_added_and_those_of_a_store_are_not() -> None:
    one = [{"entries": 3, "bytes": 10}, {"entries": 3, "bytes": 10}]
    assert _added({"processes": [one, [{"entries": 2, "bytes": 5}], [None]]}) == {"entries": 5, "bytes": 15}
    assert _added({"processes": [[{"store_entries": 7}], [{"store_entries": 7}]]}) == {"store_entries": 7}
    assert _added({"processes": [[{"store_purged": 7}], [{"store_purged": 0}]]}) == {"store_purged": 7}
