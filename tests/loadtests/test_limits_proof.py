"""The proof of limits in small: two gateways of two processes, a real Valkey, and what may happen to them."""

from __future__ import annotations

import asyncio
import sys

import pytest
from conftest import LOADTESTS

SCENARIOS = ("nothing", "process_killed", "gateway_killed", "store_flushed")


@pytest.mark.timeout(120)
def test_a_limit_holds() -> None:
    async def body() -> list[str]:
        script = str(LOADTESTS / "limits" / "proof.py")
        arguments = ("--limit", "100", "--calls", "300", "--at-once", "--only", ",".join(SCENARIOS))
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(sys.executable, script, *arguments, stdout=pipe, stderr=pipe)
        out, err = await process.communicate()
        assert process.returncode == 0, out + err
        return out.decode().splitlines()

    said = asyncio.run(body())
    assert len(said) == len(SCENARIOS)
    assert any(line.startswith("nothing") and "admitted   100 of 100, bound    0  holds" in line for line in said)
