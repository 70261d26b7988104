"""One run of a launched engine: started through its keeper, watched by pidfd, ended with all that it forked.

What still cannot be promised: if sidecar and keeper are killed together, the engine gets SIGTERM from the kernel and
nothing more (the next sidecar on the host kills what stayed: see `stragglers`); and a process stuck inside a driver
survives SIGKILL until the driver lets go.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable

from tailrace.worker.engine import keeper, stragglers
from tailrace.worker.engine.command import Command, EngineError
from tailrace.worker.engine.output import OutputRelay
from tailrace.worker.engine.pidfd import ProcessEnd

log = logging.getLogger(__name__)

START_LIMIT = 20.0
"""Seconds a keeper may take to fork: it is a bare interpreter, so more means that the host is in trouble."""


class EngineProcess:
    """A running engine.

    `ended` is done the moment the engine's first process is gone, with its exit code (negative: a signal; None:
    unknown). What it left behind is gone when `stop` returns. `stop` must be called whatever happened.
    """

    def __init__(self, relay: OutputRelay, grace: float, on_end: Callable[[], None]) -> None:
        self.pid = 0
        self._relay = relay
        self._grace = grace
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[int | None] = self._loop.create_future()
        self._forked: asyncio.Future[int] = self._loop.create_future()
        self._swept = asyncio.Event()
        self._mark = stragglers.own_mark(uuid.uuid4().hex)
        self._status = b""
        self._fds: set[int] = set()
        self._control = -1
        self._end: ProcessEnd | None = None
        self._keeper: subprocess.Popen[bytes] | None = None
        self._stopping: asyncio.Task[None] | None = None

    @classmethod
    async def start(
        cls, command: Command, relay: OutputRelay, grace: float, on_end: Callable[[], None] = lambda: None
    ) -> EngineProcess:
        """Start it; returns once it is about to run. Raises EngineError if nothing could be forked.

        `on_end` is called on the loop at the engine's end, once, a moment before `ended` tells its exit code.
        """
        process = cls(relay, max(grace, command.grace), on_end)
        try:
            process._launch(command)
            async with asyncio.timeout(START_LIMIT):
                process.pid = await process._forked
            process._watch()
        except TimeoutError:
            await process.stop(now=True)
            raise EngineError("the engine's keeper did not start") from None
        except BaseException:
            await process.stop(now=True)
            raise
        return process

    def _launch(self, command: Command) -> None:
        theirs: list[int] = []
        try:
            control, self._control = os.pipe2(os.O_CLOEXEC)
            theirs.append(control)
            self._fds.add(self._control)
            status, status_write = os.pipe2(os.O_CLOEXEC)
            theirs.append(status_write)
            self._fds.add(status)
            output, output_write = os.pipe2(os.O_CLOEXEC)
            theirs.append(output_write)
            self._fds.add(output)
            self._keeper = subprocess.Popen(  # noqa: S603 - the operator's own command
                [
                    *(sys.executable, "-I", "-S", keeper.__file__),
                    *(str(control), str(status_write), str(self._grace)),
                    *command.argv,
                ],
                stdin=subprocess.DEVNULL,
                stdout=output_write,
                stderr=output_write,
                env={**stragglers.KEEP_MARK, **command.env, stragglers.MARK: self._mark},
                pass_fds=(control, status_write),
                start_new_session=True,
            )
        except OSError as error:
            raise EngineError(f"the engine's keeper cannot be started: {error}") from error
        finally:
            for fd in theirs:
                os.close(fd)
        for fd, read in ((status, self._read_status), (output, self._read_output)):
            os.set_blocking(fd, False)
            self._loop.add_reader(fd, read, fd)

    def _watch(self) -> None:
        with contextlib.suppress(OSError):
            self._end = ProcessEnd(self.pid, self._gone)
        # Where the kernel has no pidfds the keeper's word is as good: it is this process's parent.
        self._order(b"g")

    def _order(self, order: bytes) -> None:
        if self._control in self._fds:
            with contextlib.suppress(OSError):
                os.write(self._control, order)

    def _read_output(self, fd: int) -> None:
        try:
            chunk = os.read(fd, 65536)
        except BlockingIOError:
            return
        if chunk:
            self._relay.feed(chunk)
        else:
            self._drop(fd)
            self._relay.flush()

    def _read_status(self, fd: int) -> None:
        try:
            chunk = os.read(fd, 4096)
        except BlockingIOError:
            return
        *lines, self._status = (self._status + chunk).split(b"\n")
        for line in lines:
            word, _, rest = line.decode(errors="replace").partition(" ")
            if word == "pid" and not self._forked.done():
                self._forked.set_result(int(rest))
            elif word == "exit":
                self._finish(int(rest))
            elif word == "error":
                self._relay.feed(f"cannot run {rest}\n".encode())
            elif word == "stuck":
                log.error("engine processes survive SIGKILL: %s", rest)
        if not chunk:
            self._drop(fd)
            if not self._forked.done():
                self._forked.set_exception(EngineError("the engine's keeper ended before the engine began"))
            self._finish(None)
            self._swept.set()

    def _gone(self) -> None:
        self._on_end()
        # The exit code is on its way: the keeper says it in the same instant.
        self._loop.call_later(0.5, self._finish, None)

    def _finish(self, code: int | None) -> None:
        if not self.ended.done():
            self.ended.set_result(code)
            if self.pid and (self._end is None or self._end.close()):
                self._on_end()

    def _drop(self, fd: int) -> None:
        if fd in self._fds:
            self._fds.discard(fd)
            self._loop.remove_reader(fd)
            os.close(fd)

    async def stop(self, *, now: bool = False) -> None:
        """End the engine and all it forked: SIGTERM first unless `now`, SIGKILL after the grace. Repeatable.

        If the caller is cancelled it goes on by itself.
        """
        self._order(b"k" if now else b"t")
        if self._stopping is None:
            self._stopping = self._loop.create_task(self._stop(now))
        await asyncio.shield(self._stopping)

    async def _stop(self, now: bool) -> None:
        try:
            if self._keeper is not None:
                limit = (0.0 if now else self._grace) + keeper.GIVE_UP + 5.0
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(limit):
                        await self._swept.wait()
                if await self._loop.run_in_executor(None, self._collect, self._keeper):
                    log.warning("the engine's keeper did not end well; its engine was looked for and killed")
        finally:
            for fd in tuple(self._fds):
                self._drop(fd)
            self._relay.flush()
            self._finish(None)

    def _collect(self, kept: subprocess.Popen[bytes]) -> bool:
        """Reap the keeper; if it did not end by itself, do its work. On a thread, as it may wait."""
        try:
            if kept.wait(timeout=2.0) == 0:
                return False
        except subprocess.TimeoutExpired:
            kept.kill()
            kept.wait()
        if self.pid:
            with contextlib.suppress(OSError):
                os.killpg(self.pid, signal.SIGKILL)
        stragglers.kill_run(self._mark)
        return True
