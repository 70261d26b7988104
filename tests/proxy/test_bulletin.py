"""`/readyz` of the data port: what keeps traffic from the whole host is told by each of its processes."""

import os
import shutil
import signal
from contextlib import AsyncExitStack
from pathlib import Path

import counted
import pytest
from fakes import GOOD, RawClient, Upstream, gateway, run, yaml_for
from served import QUICK, engine, serving
from tailrace.proxy.bulletin import Bulletin
from tailrace.proxy.control import Gone, Refused
from tailrace.proxy.ground import Places
from tailrace.proxy.host import Host
from tailrace.proxy.metrics.process import ProcessMetrics
from tailrace.proxy.pipeline import Link

READY = (200, {"status": "ready", "reasons": []})
FULL = (503, {"status": "unready", "reasons": ["the count is full"]})


async def told(url: str) -> list[object]:
    """What several connections, which are spread over the processes, are told; each thing once."""
    found: list[object] = []
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(RawClient(url)) for _ in range(8)]
        for client in clients:
            answer = await client.get("/readyz")
            if (told := (answer.status, answer.json())) not in found:
                found.append(told)
    return found


async def becomes(url: str, wanted: object) -> None:
    while await told(url) != [wanted]:
        pass


def test_every_process_tells_what_the_parts_say_from_its_first_answer_on(tmp_path: Path) -> None:
    shutil.copy(counted.__file__, tmp_path)

    def chain(upstream: Upstream, first: int) -> str:
        more = f"{QUICK}state: {tmp_path / 'state'}\nprocesses: 2\nadmin: unix:{tmp_path}/admin.sock\n"
        return yaml_for(upstream, plugins=f"- counted:Counted: {{first: {first}}}", more=more)

    async def body() -> None:
        async with Upstream(engine(GOOD)) as upstream, serving(tmp_path, chain(upstream, 950)) as it:
            # Whether a worker has been heard of yet is another matter.
            for _, said in await told(it.url):  # type: ignore[misc]
                assert "the count is full" in said["reasons"]
            await becomes(it.url, FULL)
            os.kill(it.processes[0], signal.SIGKILL)
            await it.until("it is replaced")
            while (await it.get("/readyz")).json()["processes"]["serving"] < 2:
                pass
            for status, _ in await told(it.url):  # type: ignore[misc]
                assert status == 503
            it.file.write_text(chain(upstream, 5))
            await it.generation(2)
            await becomes(it.url, READY)
            it.file.write_text(chain(upstream, 950))
            await it.generation(3)
            await becomes(it.url, FULL)

    run(body(), limit=60)


def test_a_gateway_without_a_supervisor_tells_it_directly(tmp_path: Path) -> None:
    async def body() -> None:
        yaml = yaml_for("http://127.0.0.1:1", plugins="- counted:Counted: {first: 950}", more=f"state: {tmp_path}\n")
        async with gateway(yaml) as process:
            assert await told(process.doors[0].shown) == [FULL]
            process._host._parts["counted:Counted"][1].count = 0
            assert await told(process.doors[0].shown) == [READY]

    run(body())


def test_a_part_that_cannot_say_keeps_traffic_away_and_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def body() -> None:
        host = Host(Places.of(tmp_path), ProcessMetrics().host_values)
        await host.prepare([Link(counted.Counted(counted.Config(first=n)), f"n{n}") for n in (666, 950)])
        await host.commit()
        for _ in range(3):
            assert host.unready() == ["n666: it cannot be told whether it is ready", "the count is full"]
        await host.close()

    run(body())
    assert [record.message for record in caplog.records] == [
        "the part of plugin 'n666' on this host failed to say whether it is ready"
    ]


class Far:
    """A process as the crew sees it; its channel fails as often as there are `faults`."""

    def __init__(self, *faults: Exception) -> None:
        self.host_unready: tuple[str, ...] = ()
        self.heard: list[tuple[str, ...]] = []
        self.faults = list(faults)
        self.channel = self

    async def ask(self, what: str, *, reasons: tuple[str, ...]) -> None:
        assert what == "host_unready"
        if self.faults:
            raise self.faults.pop()
        self.heard.append(reasons)


class Crew:
    def __init__(self, *serving: Far) -> None:
        self.serving = serving


def test_each_change_is_told_once_and_again_to_whom_it_did_not_reach() -> None:
    async def body() -> None:
        near, far = Far(), Far(Refused("not started yet"), Gone())
        reasons = ["full"]
        bulletin = Bulletin(Crew(near, far), lambda: reasons)  # type: ignore[arg-type]
        for _ in range(4):
            await bulletin.tell()
        reasons.clear()
        await bulletin.tell()
        assert near.heard == far.heard == [("full",), ()]

    run(body())
