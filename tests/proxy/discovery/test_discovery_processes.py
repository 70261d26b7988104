"""Discovery with several processes behind one listener: what is found reaches all of them, new ones too."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from fakes import CHAT, GOOD, PATH, RawClient, Upstream, run
from served import QUICK, Served, engine, serving
from sidecars import KEY, hop
from tailrace.proxy.configuration import load
from tailrace.proxy.control import Gone, Refused
from tailrace.proxy.discovery.announcement import PATH as WORKERS
from tailrace.proxy.discovery.endpoint import Endpoint, Found
from tailrace.proxy.discovery.tidings import Tidings
from tailrace.proxy.orders import Orders
from tailrace.proxy.process import Occupant
from tailrace.proxy.reload import Reloader
from tailrace.proxy.tally import Tally


def yaml(file: Path, more: str = "") -> str:
    return (
        f"listen: [127.0.0.1:0]\nmodels: {{m: {{pool: p}}}}\nprocesses: 2\nhop_key: {KEY}\n{QUICK}{more}"
        f"pools: {{p: {{workers: [{{file: {file}}}, {{registered: g}}]}}}}\n"
    )


async def listed(served: Served, holds: Callable[[list[dict[str, Any]]], bool]) -> list[dict[str, Any]]:
    """The workers, as soon as something holds of them in all processes."""
    while True:
        workers: list[dict[str, Any]] = (await served.get("/admin/workers")).json()["workers"]
        if holds(workers):
            return workers
        await asyncio.sleep(0.01)


def are(*upstreams: Upstream) -> Callable[[list[dict[str, Any]]], bool]:
    urls = sorted(upstream.url for upstream in upstreams)
    return lambda workers: [each["worker"] for each in workers if each["eligible"]] == urls


async def statuses(served: Served, count: int = 8) -> list[int]:
    """Of calls on connections that are spread over the processes."""
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(RawClient(served.url)) for _ in range(count)]
        return [(await client.post(PATH, CHAT)).status for client in clients]


def test_a_changed_file_reaches_every_process_and_the_ones_that_come_later(tmp_path: Path) -> None:
    async def body() -> None:
        file = tmp_path / "workers.yaml"
        async with Upstream(engine(GOOD)) as one, Upstream(engine(GOOD)) as two:
            file.write_text(f"- {one.url}\n")
            async with serving(tmp_path, yaml(file)) as it:
                assert await statuses(it) == [200] * 8
                file.write_text(f"- {two.url}\n")
                (worker,) = await listed(it, are(two))
                assert worker["origins"] == [f"file {file}"]
                before = sum(request.method == "POST" for request in one.requests)
                assert await statuses(it) == [200] * 8
                assert sum(request.method == "POST" for request in one.requests) == before
                # A new process has the last good list, though it could not read it now.
                file.write_text("- [\n")
                await it.until("the last known ones stay")
                os.kill(it.processes[0], signal.SIGKILL)
                await it.until("it is replaced")
                while (await it.get("/readyz")).json()["processes"]["serving"] < 2:
                    await asyncio.sleep(0.01)
                assert await statuses(it) == [200] * 8

    run(body(), limit=50)


def test_a_registration_reaches_every_process_before_it_is_answered(tmp_path: Path) -> None:
    async def body() -> None:
        file = tmp_path / "workers.yaml"
        file.write_text("[]")
        async with Upstream(engine(GOOD)) as one, serving(tmp_path, yaml(file)) as it:
            assert set(await statuses(it)) == {503}
            async with RawClient(it.url) as client:
                answer = await client.post(WORKERS, {"group": "g", "worker": one.url, "region": "eu"}, hop())
                assert answer.json() == {"lease": 15.0}
                assert await statuses(it) == [200] * 8
                (worker,) = await listed(it, are(one))
                assert (worker["origins"], worker["region"]) == (["registered g"], "eu")
                assert 13.0 < worker["lease"] <= 15.0
                os.kill(it.processes[0], signal.SIGKILL)
                await it.until("it is replaced")
                while (await it.get("/readyz")).json()["processes"]["serving"] < 2:
                    await asyncio.sleep(0.01)
                assert await statuses(it) == [200] * 8
            async with RawClient(it.url) as client:
                await client.post(WORKERS, {"group": "g", "worker": one.url, "leave": True}, hop())
            assert set(await statuses(it)) == {503}

    run(body(), limit=50)


def test_a_reload_knows_what_a_new_source_has_found_from_its_first_call_on(tmp_path: Path) -> None:
    async def body() -> None:
        first, second = tmp_path / "first.yaml", tmp_path / "second.yaml"
        async with Upstream(engine(GOOD)) as one, Upstream(engine(GOOD)) as two:
            first.write_text(f"- {one.url}\n")
            second.write_text(f"- {two.url}\n")
            async with serving(tmp_path, yaml(first)) as it:
                text, over, seen = it.file.read_text(), asyncio.Event(), set[int]()

                async def load() -> None:
                    while not over.is_set():
                        seen.update(await statuses(it, 2))

                running = asyncio.ensure_future(load())
                for number in range(6):
                    new = it.file.with_suffix(".new")
                    new.write_text(text.replace(str(first), str(second)) if number % 2 == 0 else text)
                    new.replace(it.file)
                    it.signal(signal.SIGHUP)
                    await it.generation(number + 2)
                over.set()
                await running
                assert seen == {200}
                # A file whose list is faulty refuses the configuration that would begin with it.
                second.write_text("- [\n")
                it.file.write_text(text.replace(str(first), str(second)))
                it.signal(signal.SIGHUP)
                await it.until("the changed configuration is refused")
                assert await statuses(it) == [200] * 8

    run(body(), limit=50)


def test_a_drained_worker_that_is_found_again_by_a_new_process_is_drained(tmp_path: Path) -> None:
    async def body() -> None:
        file = tmp_path / "workers.yaml"
        async with Upstream(engine(GOOD)) as one, Upstream(engine(GOOD)) as two:
            file.write_text(f"- {one.url}\n- {two.url}\n")
            async with serving(tmp_path, yaml(file)) as it:
                await listed(it, are(one, two))
                async with RawClient(it.admin) as client:
                    assert (await client.post("/admin/workers/drain", {"worker": one.url})).status == 200
                file.write_text(f"- {two.url}\n")
                await listed(it, lambda workers: len(workers) == 1)
                for pid in it.processes:
                    os.kill(pid, signal.SIGKILL)
                await it.until("it is replaced")
                while (await it.get("/readyz")).json()["processes"]["serving"] < 2:
                    await asyncio.sleep(0.01)
                file.write_text(f"- {one.url}\n- {two.url}\n")
                workers = await listed(it, lambda workers: len(workers) == 2)
                assert [each["worker"] for each in workers if each["drained"]] == [one.url]

    run(body(), limit=50)


class Process:
    """A role's process that notes what it is told."""

    def __init__(self) -> None:
        self.heard: list[Found] = []

    def discovered(self, found: Found, then: Callable[[], None]) -> None:
        self.heard.append(found)
        then()

    def workers(self) -> list[Any]:
        return []


def test_what_is_older_than_what_a_process_knows_changes_nothing() -> None:
    async def body() -> None:
        occupant, process = Occupant(), Process()
        occupant._process = process  # type: ignore[assignment]
        for number in (3, 2, 3, 4):
            members = {"file x": [[f"http://{number}", None, None, ""]]}
            await occupant.answer("found", {"found": {"number": number, "members": members, "same": {}}})
        assert [found.members["file x"][0].url for found in process.heard] == ["http://3", "http://4"]

    run(body())


class Told:
    """All that a reload asks, in its order."""

    def __init__(self) -> None:
        self.order: list[str] = []
        self.serving: list[Any] = []
        self.search = self

    async def prepare(self, _what: object) -> None:
        self.order.append("search")

    async def tell(self) -> None:
        self.order.append("tell")

    async def ask(self, what: str, **_: object) -> dict[int, object]:
        self.order.append(what)
        return {0: Refused("no")} if what == "prepare" and self.order.count("prepare") > 1 else {0: None}

    def commit(self) -> None:
        self.order.append("follow")

    def discard(self) -> None:
        self.order.append("go back")


class Parts:
    """A host without parts."""

    async def prepare(self, _links: object) -> None:
        """Nothing."""

    commit = discard = lambda self: asyncio.sleep(0)


def test_processes_are_told_what_a_configuration_names_before_they_prepare_it(tmp_path: Path) -> None:
    async def body() -> None:
        file, told = tmp_path / "gateway.yaml", Told()
        file.write_text("listen: 127.0.0.1:0\nmodels: {m: {workers: ['http://127.0.0.1:1']}}\n")
        configuration = load(file)
        reloader = Reloader(Orders(configuration), told, Parts(), told, Tally().supervision)  # type: ignore[arg-type]
        await reloader._agree(configuration)
        assert told.order == ["search", "tell", "prepare", "commit", "follow"]
        told.order = told.order[2:3]
        with pytest.raises(Refused):
            await reloader._agree(configuration)
        assert told.order == ["prepare", "search", "tell", "prepare", "discard", "go back"]

    run(body())


class Far:
    """A process as the crew sees it."""

    def __init__(self, *faults: Exception) -> None:
        self.found = 1
        self.heard: list[int] = []
        self.faults = list(faults)
        self.channel = self

    async def ask(self, what: str, *, found: dict[str, Any]) -> None:
        assert what == "found"
        if self.faults:
            raise self.faults.pop()
        self.heard.append(found["number"])


class Searched:
    """A search that finds what it is told."""

    def __init__(self) -> None:
        self.found = Found()
        self.changed: Callable[[], None] = lambda: None


class Crewed:
    def __init__(self, *serving: Far) -> None:
        self.serving = serving


def test_each_finding_is_told_once_and_again_to_whom_it_did_not_reach() -> None:
    async def body() -> None:
        near, far, search = Far(), Far(Refused("not started yet"), Gone()), Searched()
        tidings = Tidings(Crewed(near, far), search)  # type: ignore[arg-type]
        await tidings.tell()
        assert near.heard == far.heard == []
        search.found = Found({"file x": (Endpoint("http://a"),)})
        search.changed()
        assert Found.from_plain(tidings.plain()) == search.found
        following = asyncio.ensure_future(tidings.follow())
        while not far.heard:
            await asyncio.sleep(0.01)
        following.cancel()
        assert near.heard == far.heard == [2]
        assert near.found == far.found == 2

    run(body())
