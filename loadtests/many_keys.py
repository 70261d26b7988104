"""What a host with very many API keys costs: `python loadtests/many_keys.py [KEYS]`.

Prints how long the host part takes to load them, the longest stall of its event loop meanwhile, the memory of a process
that has used every key, how soon a revocation acts, and what `on_open` of a known and of a new key takes.
"""

from __future__ import annotations

import asyncio
import hashlib
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import uvloop
from tailrace.plugins.auth import Auth
from tailrace.plugins.auth.keeper import Keeper
from tailrace.plugins.auth.record import Record, Status, packed
from tailrace.plugins.auth.settings import Config
from tailrace.plugins.auth.sqlite import NAME, SqliteDatabase
from tailrace.plugins.auth.store import KeyStore
from tailrace.proxy.ground import Ground, Places
from tailrace.proxy.head import RequestHead
from tailrace.proxy.limit import Limit


def key_of(number: int) -> str:
    """One of the keys."""
    return f"tr_key{number}_{hashlib.sha256(str(number).encode()).hexdigest()}"


def fill(path: Path, count: int) -> None:
    """A store with so many keys."""
    database = SqliteDatabase(path)
    grants = packed(
        Record(
            id="a",
            digest=b"",
            tenant="a-tenant-of-some-length",
            tags=("team-blue", "production"),
            models=("llama-*", "qwen-72b"),
            limits=(Limit("requests", 600, "minute"), Limit("money", 10**11, "month", "Europe/Berlin")),
        )
    ).decode()
    database.execute("BEGIN")
    for number in range(count):
        digest = hashlib.sha256(key_of(number).encode()).digest()
        database.execute(
            "INSERT INTO tailrace_keys (id, digest, status, grants, created) VALUES (?, ?, 1, ?, ?)",
            (f"key{number}", digest, grants, float(number)),
        )
    database.execute("COMMIT")
    database.close()


class Lag:
    """The longest that a loop was late, looked at every millisecond."""

    def __init__(self) -> None:
        self.worst = 0.0

    async def watch(self) -> None:
        """Until cancelled."""
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0.001)
            self.worst = max(self.worst, time.perf_counter() - before - 0.001)


def resident() -> dict[str, float]:
    """MiB of this process: its own memory and what it has mapped of the shared table."""
    lines = Path("/proc/self/status").read_text().splitlines()
    found = {line.split(":")[0]: int(line.split()[1]) / 1024 for line in lines if line.startswith("Rss")}
    return {"own": found["RssAnon"], "mapped": found["RssFile"] + found["RssShmem"]}


async def load(config: Config, places: Places, store: KeyStore) -> None:
    """Load the keys as a supervisor does, then use them in another process."""
    lag = Lag()
    watching = asyncio.ensure_future(lag.watch())
    began = time.perf_counter()
    async with Keeper.running(config, places):
        print(f"loaded in {time.perf_counter() - began:.2f} s, longest stall {lag.worst * 1000:.1f} ms")
        lag.worst = 0.0
        process = await asyncio.create_subprocess_exec(
            sys.executable, __file__, "--use", str(places.state), stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        while line := (await process.stdout.readline()).decode().strip():
            print(line)
            if line == "waiting for a revocation":
                store.set_status("key0", Status.REVOKED)
                print(f"revoked at {time.monotonic():.3f}")
        await process.wait()
    watching.cancel()


def call_with(key: str) -> Any:
    """As much of a call as the plugin looks at."""
    headers = [
        (b"Host", b"gateway"),
        (b"Authorization", f"Bearer {key}".encode()),
        (b"Content-Type", b"application/json"),
        (b"User-Agent", b"OpenAI/Python"),
        (b"Accept", b"*/*"),
    ]
    head = RequestHead("POST", "/v1/chat/completions", b"", b"/v1/chat/completions", headers, "1.1")
    return _Call(head)


class _Call(dict[Any, Any]):
    def __init__(self, head: RequestHead) -> None:
        super().__init__()
        self.head = head
        self.route = SimpleNamespace(name="chat", local=None)

    def provide(self, fact: object) -> None:
        self["fact"] = fact


async def use(state: Path) -> None:
    """A process of the gateway: every key once, then one of them very often."""
    before = resident()
    plugin = Auth(Config())

    async def nobody(*_: object) -> None:
        return None

    plugin.ground = Ground("auth", Places.of(state), 0, nobody)  # type: ignore[arg-type]
    async with plugin.running():
        calls = [call_with(key_of(number)) for number in range(20_000)]
        took = [spent(plugin, call) for call in calls]
        print(f"a new key: {sorted(took)[len(took) // 2] * 1e6:.1f} us")
        del calls
        for number in range(20_000, plugin._view.keys if plugin._view else 0):
            plugin.on_open(call_with(key_of(number)))
        after = resident()
        print(f"memory: own {after['own']:.0f} MiB ({after['own'] - before['own']:+.0f}), mapped {after['mapped']:.0f}")
        call = call_with(key_of(0))
        for form, fresh in (("its own head", True), ("a head seen before on its connection", False)):
            took = sorted(spent(plugin, call_with(key_of(0)) if fresh else call) for _ in range(50_000))
            print(f"a known key, {form}: {took[len(took) // 2] * 1e6:.2f} us")
        print("waiting for a revocation", flush=True)
        while refused(plugin, call) is None:  # noqa: ASYNC110 - as calls do
            await asyncio.sleep(0.001)
        print(f"acted at {time.monotonic():.3f}")


def spent(plugin: Auth, call: Any) -> float:
    """Seconds of one `on_open`."""
    began = time.perf_counter()
    plugin.on_open(call)
    return time.perf_counter() - began


def refused(plugin: Auth, call: Any) -> Exception | None:
    """How a call is refused."""
    try:
        plugin.on_open(call)
    except Exception as error:
        return error
    return None


def main(arguments: list[str]) -> None:
    """The whole of it, or the part of the process that uses the keys."""
    if arguments[:1] == ["--use"]:
        uvloop.run(use(Path(arguments[1])))
        return
    count = int(arguments[0]) if arguments else 100_000
    with tempfile.TemporaryDirectory() as folder:
        places = Places.of(Path(folder))
        places.make()
        fill(places.state / NAME, count)
        try:
            uvloop.run(load(Config(), places, KeyStore(SqliteDatabase(places.state / NAME))))
        finally:
            for path in places.shared.iterdir():
                path.unlink()
            places.shared.rmdir()


if __name__ == "__main__":
    main(sys.argv[1:])
