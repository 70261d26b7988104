"""Changed configurations of a running `tailrace serve`: taken up by all processes or by none."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections import Counter
from pathlib import Path
from typing import Any

from certificates import Authority
from fakes import CHAT, GOOD, PATH, RawClient, Upstream, run, yaml_for
from served import QUICK, Served, engine, serving
from tailrace.proxy.ground import Places

RELOADS = 100


async def rewrite(served: Served, text: str) -> None:
    """Put another file in the place of the present one, at once: a look at a changed file may be under way."""
    new = served.file.with_suffix(".new")
    new.write_text(text)
    new.replace(served.file)
    served.signal(signal.SIGHUP)


async def load(url: str, over: asyncio.Event, statuses: Counter[int]) -> None:
    async with RawClient(url) as client:
        while not over.is_set():
            answer = await client.post(PATH, CHAT)
            statuses[answer.status if answer.complete else 0] += 1


def test_a_hundred_reloads_under_load_fail_no_call(tmp_path: Path) -> None:
    async def body() -> None:
        async with Upstream(engine(GOOD)) as upstream:
            yaml = yaml_for(upstream, more=QUICK + "processes: 2\n")
            async with serving(tmp_path, yaml) as it:
                text = it.file.read_text()
                over, statuses = asyncio.Event(), Counter[int]()
                running = [asyncio.ensure_future(load(it.url, over, statuses)) for _ in range(4)]
                for number in range(RELOADS):
                    # A worker that comes and goes, and a plugin that does.
                    other = text.replace("plugins: []", "plugins: [route]") if number % 2 else text
                    await rewrite(
                        it, other.replace(f'"{upstream.url}"', f'"{upstream.url}", "http://127.0.0.1:{9 + number % 2}"')
                    )
                    await it.generation(number + 2)
                over.set()
                await asyncio.gather(*running)
                assert set(statuses) == {200}
                assert statuses[200] > RELOADS
                assert not [line for line in it.log if " error " in line]

    run(body())


def test_faulty_file_is_refused_and_the_last_good_one_stays(tmp_path: Path) -> None:
    async def body() -> None:
        async with Upstream(engine(GOOD)) as upstream:
            yaml = yaml_for(upstream, more=QUICK + "processes: 2\n")
            async with serving(tmp_path, yaml) as it, RawClient(it.url) as client:
                await rewrite(it, it.file.read_text() + "nonsense: 1\n")
                await it.until("nonsense")
                assert (await client.post(PATH, CHAT)).status == 200
                shown = (await it.get("/admin/config")).json()
                assert shown["generation"] == 1
                assert f"{it.file}:" in shown["last_error"]
                assert "nonsense" in shown["last_error"]
                assert "nonsense" not in shown["yaml"]
                metrics = (await it.get("/metrics")).body.decode()
                assert "tailrace_config_reload_failures_total 1" in metrics
                await rewrite(it, it.file.read_text().replace("nonsense: 1", "heartbeat: 7s"))
                await it.generation(2)
                shown = (await it.get("/admin/config")).json()
                assert (shown["generation"], shown["last_error"]) == (2, None)
                assert "heartbeat: 7s" in shown["yaml"]

    run(body())


PLUGIN = """
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tailrace.proxy.plugin import Plugin
from tailrace.proxy.config import setting

@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    where: str = setting(default="")

class Once(Plugin):
    Config = Config

    @asynccontextmanager
    async def running(self):
        if self.config.where:
            with Path(self.config.where).open("x"):
                pass
        yield
"""


def test_file_that_one_process_cannot_take_up_is_taken_up_by_none(tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "once_only.py").write_text(PLUGIN)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    async def body() -> None:
        async with Upstream(engine(GOOD)) as upstream:
            yaml = yaml_for(upstream, more=QUICK + "processes: 2\n")
            async with serving(tmp_path, yaml) as it, RawClient(it.url) as client:
                plugin = f"plugins: [{{'once_only:Once': {{where: {tmp_path / 'mark'}}}}}]"
                await rewrite(it, it.file.read_text().replace("plugins: []", plugin))
                await it.until("is refused")
                # Only one of the two could create the file.
                assert (tmp_path / "mark").exists()
                assert (await it.get("/admin/config")).json()["generation"] == 1
                generations = [
                    line
                    for line in (await it.get("/metrics")).body.decode().splitlines()
                    if line.startswith("tailrace_config_generation")
                ]
                assert generations == ["tailrace_config_generation 1"]
                assert (await client.post(PATH, CHAT)).status == 200

    run(body())


def test_changed_file_needs_no_signal_nor_does_one_that_it_reads(tmp_path: Path) -> None:
    async def body() -> None:
        secret = tmp_path / "secret"
        secret.write_text("first-secret-of-some-length")
        yaml = yaml_for("http://127.0.0.1:1", more=QUICK + f"hop_key: ${{file:{secret}}}\n")
        async with serving(tmp_path, yaml) as it:
            secret.write_text("second-secret-of-some-length")
            await it.generation(2)
            it.file.write_text(it.file.read_text() + "heartbeat: 9s\n")
            await it.generation(3)
            shown = (await it.get("/admin/config")).json()["yaml"]
            assert "secret-of" not in shown
            assert "hop_key: '***'" in shown

    run(body())


FAILING = """
import sys
from dataclasses import dataclass
from tailrace.proxy.config import setting
from tailrace.proxy.plugin import Plugin

@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    where: str = setting(default="")

    def check(self):
        if self.where == "check":
            sys.exit("told by check")
        return ()

class Failing(Plugin):
    Config = Config

    def __init__(self, config):
        if config.where == "init":
            raise RuntimeError("told by init")

    def host_part(self, places):
        raise RuntimeError("told by host")
"""


def test_whatever_a_plugin_does_is_a_refused_reload_and_the_watch_goes_on(tmp_path: Path) -> None:
    (tmp_path / "failing_plugin.py").write_text(FAILING)

    async def body() -> None:
        yaml = yaml_for("http://127.0.0.1:1", more=f"{QUICK}state: {tmp_path}/state\n")
        async with serving(tmp_path, yaml) as it:
            good = it.file.read_text()
            for where in ("init", "check", "host"):
                text = good.replace("plugins: []", f"plugins: [{{'failing_plugin:Failing': {{where: {where}}}}}]")
                if where == "check":
                    # The watch itself meets the worst of them, an exit.
                    it.file.write_text(text)
                else:
                    await rewrite(it, text)
                await it.until(f"told by {where}")
                assert f"told by {where}" in (await it.get("/admin/config")).json()["last_error"]
            await rewrite(it, good + "hop_key: ${NOT_SET_ANYWHERE}\n")
            await it.until("`NOT_SET_ANYWHERE` is not set")
            it.file.write_text(good + "heartbeat: 9s\n")
            await it.generation(2)
            assert (await it.get("/admin/config")).json()["last_error"] is None

    try:
        run(body())
    finally:
        shutil.rmtree(Places.of(tmp_path / "state").shared, ignore_errors=True)


def test_changed_listener_waits_for_a_restart_and_says_so(tmp_path: Path) -> None:
    async def body() -> None:
        async with Upstream(engine(GOOD)) as upstream:
            async with serving(tmp_path, yaml_for(upstream, more=QUICK)) as it, RawClient(it.url) as client:
                await rewrite(it, it.file.read_text().replace("127.0.0.1:0", "127.0.0.1:1") + "processes: 3\n")
                await it.until("`listen`, `processes` changed: a restart puts that into effect")
                assert (await it.get("/admin/config")).json()["restart_needed_for"] == ["listen", "processes"]
                assert (await client.post(PATH, CHAT)).status == 200
                async with RawClient(it.url) as another:
                    assert (await another.post(PATH, CHAT)).status == 200

    run(body())


def test_replacement_serves_by_the_newest_file(tmp_path: Path) -> None:
    async def body() -> None:
        async with Upstream(engine(GOOD)) as upstream:
            async with serving(tmp_path, yaml_for(upstream, more=QUICK)) as it:
                await rewrite(it, it.file.read_text().replace("models: {m:", "models: {n:"))
                await it.generation(2)
                (old,) = it.processes
                os.kill(old, signal.SIGKILL)
                await it.until("it is replaced")
                async with RawClient(it.url) as client:
                    assert (await client.post(PATH, CHAT | {"model": "n"})).status == 200
                    assert (await client.post(PATH, CHAT)).status == 404
                metrics = (await it.get("/metrics")).body.decode()
                assert "tailrace_config_generation 2" in metrics

    run(body())


def test_changed_certificate_is_taken_up_without_a_reload(tmp_path: Path) -> None:
    async def body() -> None:
        authority = Authority(tmp_path)
        pair = authority.issue("server")
        tls = f"[{{address: '127.0.0.1:0', tls: {{cert: '{pair.cert}', key: '{pair.key}'}}}}]"
        yaml = yaml_for("http://127.0.0.1:1", more=QUICK + "processes: 2\n").replace("[127.0.0.1:0]", tls)
        async with serving(tmp_path, yaml) as it:
            assert it.url.startswith("https://127.0.0.1:")
            async with RawClient(it.url, tls=authority.trusting()) as client:
                assert (await client.get("/healthz")).status == 200
            pair.cert.write_text("nonsense")
            told = f"127.0.0.1:0: the changed certificate cannot be used, the old one stays: {pair.cert} holds no PEM"
            while told not in str(shown := (await it.get("/admin/config")).json()["certificate_error"]):
                await asyncio.sleep(0.02)
            assert len(shown.splitlines()) == 1
            authority.issue("server")
            for index in range(2):
                while not any(f"gateway[{index}]: " in line and "read again" in line for line in it.log):
                    await asyncio.sleep(0.02)
            assert (await it.get("/admin/config")).json()["certificate_error"] is None
            async with RawClient(it.url, tls=authority.trusting()) as client:
                assert (await client.get("/healthz")).status == 200

    run(body())
