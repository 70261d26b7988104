"""A process's end, seen without being its parent's business."""

import asyncio
import os
import subprocess
import sys

import pytest
from fakes import until
from tailrace.worker.engine.pidfd import ProcessEnd


def test_an_end_is_told_once():
    async def run() -> None:
        process = subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE)
        told = []
        end = ProcessEnd(process.pid, lambda: told.append(process.pid))
        await asyncio.sleep(0)
        assert not told
        process.communicate()
        await until(lambda: told)
        assert not end.close()
        assert told == [process.pid]

    asyncio.run(run())


def test_a_closed_watch_tells_nothing_and_keeps_nothing():
    async def run() -> None:
        before = len(os.listdir("/proc/self/fd"))
        process = subprocess.Popen([sys.executable, "-S", "-c", "pass"])
        told = []
        end = ProcessEnd(process.pid, lambda: told.append(1))
        assert end.close()
        assert not end.close()
        process.wait()
        await asyncio.sleep(0)
        assert not told
        assert len(os.listdir("/proc/self/fd")) == before

    asyncio.run(run())


def test_a_process_that_is_gone_cannot_be_watched():
    async def run() -> None:
        process = subprocess.Popen([sys.executable, "-S", "-c", "pass"])
        process.wait()
        with pytest.raises(ProcessLookupError):
            ProcessEnd(process.pid, lambda: None)

    asyncio.run(run())
