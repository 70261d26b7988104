"""One `tailrace serve`: opens the listening sockets, keeps the processes that serve on them, and ends them in order.

Signals: SIGTERM or SIGINT drains, a second one ends at once, a third kills; SIGHUP reloads. The supervisor is never on
the path of a request. When it dies, its processes notice that their channel is closed, close their listeners and end
after the calls that are running: whoever starts the next supervisor can bind the same addresses at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import signal
import socket
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

from tailrace.proxy import births
from tailrace.proxy.admin.overview import Overview
from tailrace.proxy.admin.port import AdminPort
from tailrace.proxy.bulletin import Bulletin
from tailrace.proxy.configuration import Configuration
from tailrace.proxy.control import Refused, Start
from tailrace.proxy.crew import Crew, Member, StartFailed
from tailrace.proxy.discovery.announcement import announced
from tailrace.proxy.discovery.search import Search
from tailrace.proxy.discovery.tidings import Tidings
from tailrace.proxy.door import bind
from tailrace.proxy.entry import chain_links
from tailrace.proxy.host import Host
from tailrace.proxy.listener import Listener
from tailrace.proxy.orders import Orders
from tailrace.proxy.pipeline import ChainError
from tailrace.proxy.reload import Reloader
from tailrace.proxy.settings import Admin, Relay
from tailrace.proxy.tally import Tally

log = logging.getLogger("tailrace")
GRACE = 5.0


class Fatal(Exception):  # noqa: N818 - ends the program with one line
    """Serving is impossible; the text says why."""


class Supervisor:
    """Keeps the processes of one configuration until it is told to stop."""

    def __init__(self, configuration: Configuration, announce: Callable[[str], None], *, who: str = "") -> None:
        """`who` names its processes in the log, in place of their role and seat."""
        self.orders = Orders(configuration, who)
        self.tally = Tally()
        self.crew = Crew(configuration.settings.processes, self._start_of, self.tally)
        self.host = Host(self.orders.tenure.places, self.tally.supervision.host_values)
        self.search = Search(lambda: None)
        self.tidings = Tidings(self.crew, self.search)
        self.crew.on_joined, self.crew.on_left, self.crew.on_asked = self._joined, self.host.left, self._asked
        self.reloader = Reloader(self.orders, self.crew, self.host, self.tidings, self.tally.supervision)
        self.overview = Overview(self.orders, self.crew, self.host, self.search.registry.left)
        self._announce = announce
        self._births = births.shared()
        self._sockets: list[socket.socket] = []
        self._admin: AdminPort | None = None
        self._stops = 0
        self._stop = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()

    async def run(self) -> int:
        """Serve to the end; the exit code. Raises Fatal where it cannot begin."""
        settings = self.orders.configuration.settings
        self._sockets = listening(settings.listen)
        try:
            await self._open_admin(settings.admin)
            raise_file_limit(settings.limits.connections)
            await self._begin_host(settings)
            if await self._begin():
                return await self._serve()
            return 0
        finally:
            for task in tuple(self._tasks):
                task.cancel()
            await self.crew.kill()
            self.search.close()
            await self.host.close()
            if self._admin is not None:
                await self._admin.stop()
            self._close_sockets()
            if self._stops:
                log.info("stopped")

    async def _open_admin(self, settings: Admin) -> None:
        if settings.address != "off":
            (sock,) = listening([Listener(address=settings.address)], of="`admin`, ")
            self._admin = AdminPort(self.overview, sock, settings.token, self.tally.scrape)
            await self._admin.start()
            log.info("admin port: %s", self._admin.shown)

    async def _begin_host(self, settings: Relay) -> None:
        try:
            await self.host.prepare(chain_links(settings.plugins))
        except (ChainError, OSError, ValueError) as error:
            raise Fatal(str(error)) from error
        await self.host.commit()
        await self.search.prepare(settings)
        self.search.commit()

    async def _asked(self, seat: int, what: str, fields: dict[str, Any]) -> Any:
        if what == "register":
            announced(self.search, **fields)
            await self.tidings.tell()
            return None
        if what != "host":
            raise Refused(f"nobody answers '{what}' here")
        return await self.host.answer(seat, **fields)

    async def _begin(self) -> bool:
        """Start the processes; False where a signal came first."""
        starting: asyncio.Future[Any] = asyncio.ensure_future(self.crew.start())
        stopped: asyncio.Future[Any] = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait([starting, stopped], return_when=asyncio.FIRST_COMPLETED)
            if not starting.done():
                return False
            for address in starting.result():
                self._announce(f"ready {address}")
        except StartFailed as failure:
            raise Fatal(str(failure)) from None
        finally:
            starting.cancel()
            stopped.cancel()
        return True

    async def _serve(self) -> int:
        self._spawn(self.reloader.follow())
        self._spawn(Bulletin(self.crew, self.host.unready).follow())
        self._spawn(self.tidings.follow())
        stopped: asyncio.Future[Any] = asyncio.ensure_future(self._stop.wait())
        await asyncio.wait([stopped, self.crew.gave_up], return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if self.crew.gave_up.done():
            if self.crew.serving:
                await self._end_now()
            raise Fatal(self.crew.gave_up.result())
        await self._end()
        return 0

    async def _end(self) -> None:
        settings = self.orders.configuration.settings
        log.info(
            "stopping: connections are accepted for %g s more, running calls get %g s after that",
            settings.pre_stop,
            settings.drain,
        )
        self._spawn(self._close_later(settings.pre_stop))
        await self.crew.drain()
        try:
            async with asyncio.timeout(settings.pre_stop + settings.drain + GRACE):
                await self.crew.gone()
        except TimeoutError:
            log.error("processes that did not end in time are killed")

    async def _end_now(self) -> None:
        """Let those that still serve tell their clients; whoever starts the next supervisor waits for this one."""
        self._close_sockets()
        await self.crew.hurry()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GRACE):
                await self.crew.gone()

    async def _close_later(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        self._close_sockets()

    def _start_of(self, index: int, metrics: int) -> Start:
        fds = tuple(sock.fileno() for sock in self._sockets)
        return self.orders.start(
            index,
            self.crew.seats,
            fds,
            metrics=metrics,
            board=self.crew.board_fd,
            births=self._births,
            found=self.tidings.plain(),
            host_unready=self.host.unready(),
        )

    def _joined(self, member: Member) -> None:
        self._spawn(self.reloader.joined(member))

    def obey_signals(self) -> None:
        """Let SIGTERM and SIGINT stop, and SIGHUP reload."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        loop.add_signal_handler(signal.SIGHUP, self.reload)

    def reload(self) -> None:
        """Look at the file again."""
        self._spawn(self.reloader.reload())

    def stop(self) -> None:
        """End: the first time in order, the second at once, the third by force."""
        self._stops += 1
        self.overview.ending = True
        self._stop.set()
        if self._stops == 2:
            log.info("stopping at once")
            self._close_sockets()
            self._spawn(self.crew.hurry())
        elif self._stops > 2:
            self._spawn(self.crew.kill())

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _close_sockets(self) -> None:
        for sock in self._sockets:
            close_listening(sock)
        self._sockets = []


def listening(listeners: Sequence[Listener], of: str = "") -> list[socket.socket]:
    """The sockets of all listeners; Fatal names the address that could not be had, and whose it is."""
    sockets: list[socket.socket] = []
    for listener in listeners:
        try:
            sockets.append(bind(listener))
        except OSError as error:
            for sock in sockets:
                close_listening(sock)
            raise Fatal(f"cannot listen on {of}{listener.address}: {why(error)}") from None
    return sockets


def why(error: OSError) -> str:
    """An operating-system error in the words of the system."""
    text = error.strerror or str(error)
    return text[:1].lower() + text[1:]


def close_listening(sock: socket.socket) -> None:
    """Close a listening socket; the file of a Unix socket goes with it."""
    path = sock.getsockname() if sock.family == socket.AF_UNIX else ""
    sock.close()
    if path:
        Path(path).unlink(missing_ok=True)


def raise_file_limit(connections: int) -> None:
    """Let this process and its children open as many files as the system lets them; says where that is too few."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (OSError, ValueError) as error:
            log.warning("the limit of open files stays at %d: %s", soft, error)
    if 0 <= soft < 2 * connections:
        log.info(
            "a process may open %d files, and a stream takes two: set `LimitNOFILE=` (systemd), `--ulimit nofile` "
            "(docker) or `ulimit -Hn` to %d for the %d connections of `limits.connections`, or lower that",
            soft,
            2 * connections,
            connections,
        )
