"""The health check of the container: the very command of the Dockerfile, asked of a running gateway."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from importlib.resources import files
from pathlib import Path

from fakes import run, yaml_for
from served import serving

DOCKERFILE = files("tailrace.config").joinpath("deploy", "Dockerfile").read_text()


async def healthy(url: str) -> bool:
    found = re.search(r"^HEALTHCHECK .*CMD (\[.*\])$", DOCKERFILE, re.MULTILINE)
    assert found
    python, *words = json.loads(found[1])
    assert python == "python"
    environment = os.environ | {"TAILRACE_HEALTH": url, "http_proxy": "http://127.0.0.1:1"}
    check = await asyncio.create_subprocess_exec(
        sys.executable, *words, env=environment, stderr=asyncio.subprocess.DEVNULL
    )
    return await check.wait() == 0


def test_the_health_check(tmp_path: Path) -> None:
    async def body() -> None:
        more = "admin: 127.0.0.1:0\n"
        async with serving(tmp_path, yaml_for("http://127.0.0.1:1", more=more)) as it:
            admin = (await it.until("admin port", it.log)).rpartition(" ")[2]
            assert await healthy(f"{it.url}/healthz")
            assert await healthy(f"{admin}/healthz")
            assert not await healthy(f"{it.url}/nowhere")
        assert not await healthy(f"{it.url}/healthz")

    run(body())


def test_the_port_that_is_exposed_is_the_one_that_is_asked() -> None:
    assert "\nEXPOSE 8080\n" in DOCKERFILE
    assert "\nENV TAILRACE_HEALTH=http://127.0.0.1:8080/healthz\n" in DOCKERFILE
