"""Keys for tests: made as people make them, and a gateway that asks for them."""

from __future__ import annotations

import asyncio
import contextlib
import io
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from cases.scene import WITNESS, Scene, scene
from fakes import CHAT, GOOD, PATH, Answer, RawClient
from tailrace.plugins.auth import Auth, command
from tailrace.proxy.ground import Places
from tailrace.proxy.testing.worker import Script

AUTH = "auth"


def keys(*arguments: object) -> str:
    """What a `tailrace keys` command prints; it has to go well."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        assert command.main([str(argument) for argument in arguments]) == 0
    return out.getvalue().strip()


def create(state: Path, *arguments: str, tenant: str = "acme") -> str:
    """A new key."""
    return keys("create", "--state", state, "--tenant", tenant, *arguments)


def id_of(key: str) -> str:
    return key.split("_")[1]


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


@asynccontextmanager
async def guarded(
    state: Path, config: str = "{}", *scripts: Script | bytes, more: str = "", keep: bool = False
) -> AsyncIterator[Scene]:
    """A gateway whose first plugin is `auth`, with a witness behind it; `keep` what it shares for the next one."""
    listed = f"[{AUTH}: {config}, {WITNESS[1:-1]}]"
    try:
        async with scene(*(scripts or (GOOD,)), plugins=listed, more=f"state: {state}\n{more}") as s:
            yield s
    finally:
        if not keep:
            shutil.rmtree(Places.of(state).shared, ignore_errors=True)


def plugin_of(s: Scene) -> Any:
    return next(link.plugin for link in s.process.service.chain.pipeline.links if isinstance(link.plugin, Auth))


async def ask(s: Scene, headers: dict[str, str] | None = None, body: Any = CHAT, path: str = PATH) -> Answer:
    async with RawClient(s.url) as client:
        return await client.post(path, body, headers)


async def status(s: Scene, key: str, **rest: Any) -> int:
    return (await ask(s, bearer(key), **rest)).status


async def becomes(s: Scene, key: str, wanted: int, limit: float = 10.0) -> None:
    """Wait until a key is answered so."""
    async with asyncio.timeout(limit):
        while await status(s, key) != wanted:
            await asyncio.sleep(0.01)
