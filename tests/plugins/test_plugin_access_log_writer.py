"""How the lines of the `access_log` plugin reach their file, and what happens where they cannot."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import orjson
import pytest
from fakes import run
from tailrace.plugins import access_log_writer
from tailrace.plugins.access_log import AccessLog, Config
from tailrace.plugins.access_log_queue import Queue
from tailrace.plugins.access_log_writer import Writer


def lines_of(path: Path) -> list[dict]:
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


def wait_for(condition) -> None:
    pause = threading.Event()
    while not condition():
        pause.wait(0.005)


@pytest.fixture
def started():
    """Makes running writers with short intervals, and ends them."""
    writers: list[Writer] = []

    def start(path: Path | None, limit: int = 100, fd: int | None = None) -> Writer:
        writer = Writer(path, Queue(limit))
        if fd is not None:
            writer._fd = fd
        writer.open()
        writer.start()
        writers.append(writer)
        return writer

    yield start
    for writer in writers:
        writer.finish()
        writer.join(5)
        assert not writer.is_alive()


@pytest.fixture(autouse=True)
def quickly(monkeypatch):
    monkeypatch.setattr(access_log_writer, "INTERVAL", 0.01)
    monkeypatch.setattr(access_log_writer, "RETRY", 0.02)
    monkeypatch.setattr(access_log_writer, "LAST_CHANCE", 0.1)


def test_a_rotated_file_is_opened_again(tmp_path, started):
    path = tmp_path / "log"
    writer = started(path)
    writer.queue.put(b'{"n":1}\n')
    wait_for(lambda: path.read_bytes())
    path.rename(tmp_path / "log.1")
    writer.queue.put(b'{"n":2}\n')
    wait_for(lambda: path.exists() and path.read_bytes())
    assert lines_of(path) == [{"n": 2}]
    assert lines_of(tmp_path / "log.1") == [{"n": 1}]


def test_reopen_follows_a_path_that_looks_the_same(tmp_path):
    async def body():
        plugin = AccessLog(Config(file=tmp_path / "log"))
        async with plugin.running():
            before = plugin._writer._fd
            inode = os.fstat(before).st_ino
            spare = os.open("/dev/null", os.O_RDONLY)
            plugin.reopen()
            plugin._writer.queue.put(b"{}\n")
            while plugin._writer.reopen:
                await asyncio.sleep(0.005)
            assert os.fstat(plugin._writer._fd).st_ino == inode
            os.close(spare)

    run(body())


def test_a_full_disk_is_survived_and_its_losses_are_reported(tmp_path, started, caplog):
    path = tmp_path / "log"
    path.symlink_to("/dev/full")
    writer = started(path, limit=3)
    writer.queue.put(b'{"n":1}\n')
    wait_for(lambda: writer.failures)
    for n in range(2, 7):
        writer.queue.put(b'{"n":%d}\n' % n)
    assert writer.queue.dropped == 2
    path.unlink()
    wait_for(lambda: path.exists() and len(path.read_bytes().splitlines()) == 5)
    *kept, note = lines_of(path)
    assert [line["n"] for line in kept] == [1, 2, 3, 4]
    assert note["dropped"] == 2
    assert writer.is_alive()
    assert sum("No space left" in record.message for record in caplog.records) == 1


def test_a_pipe_that_nobody_reads_delays_nothing_but_lines(started):
    inside, outside = os.pipe()
    line = b'{"x":"' + b"x" * 500 + b'"}\n'
    writer = started(None, limit=200, fd=outside)
    put = 0
    while not writer.queue.dropped:
        writer.queue.put(line)
        put += 1
    got = b""
    while got.count(line) < put - writer.queue.dropped or b'"dropped"' not in got:
        got += os.read(inside, 65536)
    notes = [orjson.loads(other) for other in got.splitlines(keepends=True) if other != line]
    assert sum(note["dropped"] for note in notes) == writer.queue.dropped
    os.close(inside)
    writer.queue.put(line)
    wait_for(lambda: writer.failures)
    assert writer.is_alive()
    writer.finish()
    writer.join(5)
    os.close(outside)


def test_lines_to_a_pipe_are_never_cut_by_those_of_another_process(started):
    inside, outside = os.pipe()
    line = b'{"x":"' + b"x" * 900 + b'"}\n'
    writers = [started(None, limit=150, fd=outside) for _ in range(3)]
    for _ in range(150):
        for writer in writers:
            writer.queue.put(line)
    got = b""
    while len(got) < 450 * len(line):
        got += os.read(inside, 4096)
    assert set(got.splitlines(keepends=True)) == {line}
    for writer in writers:
        writer.finish()
        writer.join(5)
    os.close(inside)
    os.close(outside)


def test_a_line_torn_by_a_full_disk_ends_with_its_file(tmp_path, started, monkeypatch):
    path = tmp_path / "log"
    path.touch()
    real = os.write
    wrote = []

    def half(fd: int, data: bytes) -> int:
        if wrote:
            if not (tmp_path / "log.1").exists():
                raise OSError(28, "No space left on device")
            return real(fd, data)
        wrote.append(1)
        return real(fd, data[:12])

    monkeypatch.setattr(access_log_writer.os, "write", half)
    writer = started(path)
    writer.queue.put(b'{"n":1}\n')
    writer.queue.put(b'{"n":2}\n')
    writer.queue.put(b'{"n":3}\n')
    wait_for(lambda: writer.failures)
    path.rename(tmp_path / "log.1")
    wait_for(lambda: path.exists() and len(path.read_bytes().splitlines()) == 2)
    assert lines_of(path)[0] == {"n": 3}
    assert lines_of(path)[1]["dropped"] == 1


def test_what_cannot_be_written_at_the_end_is_counted(tmp_path, caplog):
    async def body():
        path = tmp_path / "log"
        path.symlink_to("/dev/full")
        plugin = AccessLog(Config(file=path))
        async with plugin.running():
            for _ in range(5):
                plugin._writer.queue.put(b"{}\n")
        assert plugin.dropped == 5
        assert plugin.failures
        assert not plugin._writer.is_alive()

    run(body())
    assert any("5 lines were lost" in record.message for record in caplog.records)


def test_a_path_that_cannot_be_opened_is_an_error_at_start(tmp_path):
    async def body():
        async with AccessLog(Config(file=tmp_path / "no" / "log")).running():
            raise AssertionError

    with pytest.raises(FileNotFoundError):
        run(body())
