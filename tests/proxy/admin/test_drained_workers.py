"""Workers that an operator drains while processes come and go."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

from fakes import CHAT, GOOD, PATH, RawClient, Upstream, run, yaml_for
from served import QUICK, Served, engine, serving

SLOW = """
import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tailrace.proxy.config import setting
from tailrace.proxy.plugin import Plugin

@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    folder: str = setting()

class Slow(Plugin):
    Config = Config

    @asynccontextmanager
    async def running(self):
        folder = Path(self.config.folder)
        while (folder / "hold").exists():
            (folder / "waits").touch()
            await asyncio.sleep(0.01)
        yield
"""


async def drain(it: Served, worker: str) -> int:
    async with RawClient(it.admin) as client:
        return int((await client.post("/admin/workers/drain", {"worker": worker})).status)


async def drained_of(it: Served) -> dict[str, Any]:
    return {worker["worker"]: worker["drained"] for worker in (await it.get("/admin/workers")).json()["workers"]}


async def lose_one(it: Served, folder: Path) -> None:
    """Kill a process; the one that replaces it does not get beyond its plugin."""
    (folder / "waits").unlink(missing_ok=True)
    (folder / "hold").touch()
    os.kill(it.processes[0], signal.SIGKILL)
    while not (folder / "waits").exists():
        await asyncio.sleep(0.01)


async def go_on(it: Served, folder: Path) -> None:
    (folder / "hold").unlink()
    while (await it.get("/readyz")).json()["processes"]["serving"] != 2:
        await asyncio.sleep(0.01)


def test_what_is_drained_while_a_process_starts_is_drained_in_it(tmp_path: Path) -> None:
    (tmp_path / "slow_start.py").write_text(SLOW)

    async def body() -> None:
        async with Upstream(engine(GOOD)) as one, Upstream(engine(GOOD)) as two:
            yaml = yaml_for(
                one, two, plugins=f"- slow_start:Slow: {{folder: {tmp_path}}}", more=QUICK + "processes: 2\n"
            )
            async with serving(tmp_path, yaml) as it:
                await lose_one(it, tmp_path)
                assert await drain(it, one.url) == 200
                assert await drain(it, "http://127.0.0.1:1") == 404
                await go_on(it, tmp_path)
                while not (await drained_of(it))[one.url]:
                    await asyncio.sleep(0.01)
                for _ in range(16):
                    async with RawClient(it.url) as client:
                        assert (await client.post(PATH, CHAT)).status == 200
                assert not [request for request in one.requests if request.method == "POST"]

    run(body())
