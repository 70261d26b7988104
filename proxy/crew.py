"""The processes that the supervisor keeps: started, asked, replaced when they die, ended together.

A process that dies is replaced at once; one that dies young, after a pause that doubles up to LONGEST_PAUSE. When no
process serves and MOST_FAILURES starts have failed in a row, the crew gives up with the reason. A start that the system
refuses, for want of a descriptor or of memory, is one that failed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import sys
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from functools import partial
from typing import Any

from tailrace.proxy.control import Channel, Gone, Refused, Start
from tailrace.proxy.share import Board
from tailrace.proxy.tally import Tally

log = logging.getLogger("tailrace")
MOST_FAILURES = 5
FIRST_PAUSE = 0.1
LONGEST_PAUSE = 5.0
YOUNG = 5.0
START_LIMIT = 60.0
ASK_LIMIT = 2.0


class StartFailed(Exception):  # noqa: N818 - told to the operator as it is
    """A process could not begin to serve; the text says why."""


class Member:
    """One running process and the channel to it."""

    def __init__(self, index: int, process: asyncio.subprocess.Process, channel: Channel, start: Start) -> None:
        self.index = index
        self.process = process
        self.channel = channel
        self.text = start.text
        """The configuration it serves by."""
        self.host_unready = start.host_unready
        """What it was told of this host."""
        self.found: int = start.found["number"]
        """The number of the last tidings of discovery that it has."""
        self.addresses: list[str] = []


class Crew:
    """As many processes as there are seats. `orders` says what a seat's process is to serve, and where it counts."""

    def __init__(self, seats: int, orders: Callable[[int, int], Start], tally: Tally) -> None:
        self._seats = seats
        self._tally = tally
        self._board = Board.create(seats) if seats > 1 else None
        self._orders = orders
        self._members: dict[int, Member] = {}
        self._keepers: list[asyncio.Task[None]] = []
        self._failures = [0] * seats
        self._firsts: list[asyncio.Future[Member]] = []
        self._ending = False
        self.gave_up: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """Set to the reason, a sentence, where the supervisor has to end."""
        self.on_joined: Callable[[Member], None] = lambda _member: None
        self.on_left: Callable[[int], None] = lambda _seat: None
        self.on_asked: Callable[[int, str, dict[str, Any]], Awaitable[Any]] | None = None
        """Answers what the process in a seat asks."""

    @property
    def serving(self) -> list[Member]:
        """The processes that accept connections now, by seat."""
        return [self._members[index] for index in sorted(self._members)]

    @property
    def seats(self) -> int:
        """How many there should be."""
        return self._seats

    @property
    def board_fd(self) -> int | None:
        """Where several processes share new connections."""
        return None if self._board is None else self._board.fd

    async def start(self) -> list[str]:
        """Start all; the addresses they listen on. Raises StartFailed as soon as one cannot."""
        loop = asyncio.get_running_loop()
        self._firsts = [loop.create_future() for _ in range(self._seats)]
        self._keepers = [asyncio.ensure_future(self._keep(index)) for index in range(self._seats)]
        for index, keeper in enumerate(self._keepers):
            keeper.add_done_callback(partial(self._kept, index))
        members = await asyncio.gather(*self._firsts)
        return members[0].addresses

    async def ask(self, what: str, *, limit: float = ASK_LIMIT, **fields: Any) -> dict[int, Any]:
        """Ask every serving process; its answer by seat, an exception where it refused, died or was silent."""
        members = self.serving
        answers = await asyncio.gather(
            *(self._ask(member, what, limit, fields) for member in members), return_exceptions=True
        )
        return {member.index: answer for member, answer in zip(members, answers, strict=True)}

    async def _ask(self, member: Member, what: str, limit: float, fields: dict[str, Any]) -> Any:
        try:
            async with asyncio.timeout(limit):
                return await member.channel.ask(what, **fields)
        except TimeoutError:
            raise Refused(f"process {member.index} did not answer within {limit:g} s") from None

    async def drain(self) -> None:
        """Let all end in their own time; nobody is replaced any more."""
        self._ending = True
        await self.ask("drain")

    async def hurry(self) -> None:
        """Let all end now, still telling their clients."""
        self._ending = True
        await self.ask("hurry")

    async def gone(self) -> None:
        """Wait until every process has ended."""
        if self._keepers:
            await asyncio.wait(self._keepers)

    async def kill(self) -> None:
        """End whatever still runs, at once."""
        self._ending = True
        for keeper in self._keepers:
            keeper.cancel()
        await self.gone()
        if self._board is not None:
            self._board.close()
            self._board = None

    async def _keep(self, index: int) -> None:
        pause = FIRST_PAUSE
        loop = asyncio.get_running_loop()
        while not self._ending:
            began = loop.time()
            try:
                await self._live(index)
            except OSError as error:
                self._failed(index, f"the system refused: {_cause(error)}")
            if loop.time() - began >= YOUNG:
                pause = FIRST_PAUSE
            elif not self._ending:
                await asyncio.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE)

    async def _live(self, index: int) -> None:
        """The life of one process, from its start to its end."""
        process = channel = None
        segment = self._tally.open()
        try:
            start = self._orders(index, segment.fd)
            ours, theirs = socket.socketpair()
            with theirs, contextlib.ExitStack() as until_taken:
                until_taken.callback(ours.close)
                ours.setblocking(False)
                process = await _launched(theirs, start)
                channel = await Channel.over(ours, None if self.on_asked is None else partial(self.on_asked, index))
                until_taken.pop_all()
            member = Member(index, process, channel, start)
            if await self._begin(member, start):
                code = await process.wait()
                self._left(index, code)
        finally:
            self._members.pop(index, None)
            if process is not None and process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
            if channel is not None:
                await channel.close()
            self._tally.retire(segment)
            if self._board is not None:
                self._board.vacate(index)
            self.on_left(index)

    async def _begin(self, member: Member, start: Start) -> bool:
        reason = f"process {member.index} did not begin to serve within {START_LIMIT:g} s"
        try:
            async with asyncio.timeout(START_LIMIT):
                member.addresses = (await member.channel.ask("start", **asdict(start)))["addresses"]
        except TimeoutError:
            pass
        except Refused as refusal:
            reason = str(refusal)
        except Gone:
            code = await member.process.wait()
            reason = f"process {member.index} ended at its start, {_ended(code)}"
        else:
            self._failures[member.index] = 0
            self._members[member.index] = member
            first = self._firsts[member.index]
            if not first.done():
                first.set_result(member)
            self.on_joined(member)
            return True
        self._failed(member.index, reason)
        return False

    def _failed(self, index: int, reason: str) -> None:
        first = self._firsts[index]
        if not first.done():
            first.set_exception(StartFailed(reason))
            return
        self._failures[index] += 1
        log.error("process %d cannot be replaced: %s", index, reason)
        if not self._members and min(self._failures) >= MOST_FAILURES and not self.gave_up.done():
            self.gave_up.set_result(f"no process can serve any more: {reason}")

    def _kept(self, index: int, keeper: asyncio.Task[None]) -> None:
        """A keeper ends with the crew, or by a mistake in here: an empty seat must not stay unnoticed."""
        error = None if keeper.cancelled() else keeper.exception()
        if error is None:
            return
        log.error("the keeper of process %d failed", index, exc_info=error)
        reason = f"process {index} cannot be kept any more: {type(error).__name__}: {error}"
        if not self._firsts[index].done():
            self._firsts[index].set_exception(StartFailed(reason))
        if not self.gave_up.done():
            self.gave_up.set_result(reason)

    def _left(self, index: int, code: int) -> None:
        if self._ending:
            return
        self._tally.supervision.restarted()
        say = log.info if code == 0 else log.error
        say("process %d ended, %s; it is replaced", index, _ended(code))


async def _launched(channel: socket.socket, start: Start) -> asyncio.subprocess.Process:
    """A process that finds its end of the channel open, and what it is to serve with."""
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tailrace.proxy.process",
        str(channel.fileno()),
        stdin=asyncio.subprocess.DEVNULL,
        start_new_session=True,
        pass_fds=(channel.fileno(), *start.descriptors),
    )


def _cause(error: OSError) -> str:
    """What the system said first; other ways that were tried then fail in words of their own."""
    while isinstance(error.__context__, OSError):
        error = error.__context__
    return error.strerror or str(error)


def _ended(code: int) -> str:
    if code >= 0:
        return f"with exit code {code}"
    try:
        return f"by {signal.Signals(-code).name}"
    except ValueError:
        return f"by signal {-code}"
