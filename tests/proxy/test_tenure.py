"""What waits for a restart waits in every process: also in those that replace others after a reload."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import orjson
from certificates import Authority
from fakes import CHAT, GOOD, PATH, RawClient, Upstream, decoded, run, yaml_for
from keys import bearer, create
from served import QUICK, Served, engine, serving
from tailrace.proxy.gateway import running
from tailrace.proxy.ground import Places
from tailrace.proxy.listener import Listener, ServerTls
from tailrace.proxy.tenure import Tenure

LISTEN = "listen: [127.0.0.1:0]"


async def replace_all(it: Served, wanted: int) -> None:
    """Kill one process after the other; each comes back before the next one goes."""
    await replace_some(it, it.processes, wanted)


async def replace_some(it: Served, pids: Sequence[int], wanted: int) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        while pid in it.processes or not await serve(it, wanted):
            assert not [line for line in it.log if "cannot be replaced" in line]
            await asyncio.sleep(0.02)


async def serve(it: Served, wanted: int) -> bool:
    return bool((await it.get("/readyz")).json()["processes"] == {"serving": wanted, "wanted": wanted})


def test_processes_that_are_replaced_keep_the_listeners_of_the_start(tmp_path: Path) -> None:
    changed = (
        "listen: [127.0.0.1:0, 127.0.0.1:1]",
        "listen: [{address: '127.0.0.1:0', proxy_protocol: true}]",
        f"listen: ['unix:{tmp_path}/other.sock']",
    )

    async def body() -> None:
        async with (
            Upstream(engine(GOOD)) as upstream,
            serving(tmp_path, yaml_for(upstream, more=QUICK + "processes: 2\n")) as it,
        ):
            first = it.file.read_text()
            for number, listen in enumerate(changed):
                it.file.write_text(first.replace(LISTEN, listen))
                it.signal(signal.SIGHUP)
                await it.generation(number + 2)
                # The older of the two each time, and in the end one that had replaced another.
                await replace_some(it, it.processes[:1], 2)
                async with AsyncExitStack() as both:
                    # Open at once, so that each process has its share.
                    for _ in range(4):
                        client = await both.enter_async_context(RawClient(it.url))
                        assert (await client.post(PATH, CHAT)).status == 200
            assert (await it.get("/admin/config")).json()["restart_needed_for"] == ["listen"]

    run(body())


def test_a_replaced_process_keeps_its_certificate_and_reads_it_again(tmp_path: Path) -> None:
    async def body() -> None:
        authority = Authority(tmp_path)
        pair = authority.issue("server")
        tls = f"listen: [{{address: '127.0.0.1:0', tls: {{cert: '{pair.cert}', key: '{pair.key}'}}}}]"
        async with Upstream(engine(GOOD)) as upstream:
            yaml = yaml_for(upstream, more=QUICK)
            async with serving(tmp_path, yaml.replace(LISTEN, tls)) as it:
                it.file.write_text(it.file.read_text().replace(tls, LISTEN))
                it.signal(signal.SIGHUP)
                await it.generation(2)
                await replace_all(it, 1)
                authority.issue("server")
                await it.until("certificate read again")
                async with RawClient(it.url, tls=authority.trusting()) as client:
                    assert (await client.post(PATH, CHAT)).status == 200

    run(body())


def test_a_tenure_travels_whole() -> None:
    listen = (
        Listener(address="unix:/run/a.sock", trusted_proxies=("unix", "10.0.0.0/8")),
        Listener(address="[::]:443", tls=ServerTls(cert=Path("/c"), key=Path("/k")), proxy_protocol=True),
        Listener(address="0.0.0.0:8443", tls=ServerTls(cert=Path("/c"), key=Path("/k"), client_ca=Path("/ca"))),
    )
    tenure = Tenure(listen=listen, places=Places(Path("/var/lib/one"), Path("/dev/shm/one")))
    assert Tenure.from_plain(orjson.loads(orjson.dumps(tenure.plain()))) == tenure


def test_a_changed_state_folder_waits_for_a_restart_in_every_process(tmp_path: Path) -> None:
    key = create(tmp_path / "first")
    with_key = bearer(key)

    async def body() -> None:
        async with Upstream(engine(GOOD)) as upstream:
            yaml = yaml_for(upstream, plugins="[auth]", more=f"{QUICK}processes: 2\nstate: {tmp_path}/first\n")
            async with serving(tmp_path, yaml) as it:
                it.file.write_text(it.file.read_text().replace(f"{tmp_path}/first", f"{tmp_path}/other"))
                it.signal(signal.SIGHUP)
                await it.generation(2)
                assert (await it.get("/admin/config")).json()["restart_needed_for"] == ["state"]
                for again in (False, True):
                    if again:
                        await replace_all(it, 2)
                    for _ in range(4):
                        async with RawClient(it.url) as client:
                            assert (await client.post(PATH, CHAT, with_key)).status == 200
                assert not (tmp_path / "other").exists()

    try:
        run(body())
    finally:
        shutil.rmtree(Places.of(tmp_path / "first").shared, ignore_errors=True)


def test_a_gateway_without_a_supervisor_stays_in_its_state_folder(tmp_path: Path) -> None:
    async def body() -> None:
        settings = decoded(yaml_for("http://127.0.0.1:1", more=f"state: {tmp_path}/first\n"))
        async with running(settings) as process:
            links = decoded(yaml_for("http://127.0.0.1:1", plugins="- counted:Counted: {}")).plugins
            await process.load(replace(settings, state=tmp_path / "other", plugins=links))
            async with RawClient(process.doors[0].shown) as client:
                assert (await client.post(PATH, CHAT)).json() == [0, 1]
        assert (tmp_path / "first" / "ended").exists()
        assert not (tmp_path / "other").exists()

    run(body())
