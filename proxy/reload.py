"""A changed configuration in all processes or in none: every one prepares it, and only if all could do they commit."""

from __future__ import annotations

import asyncio
import contextlib
import logging

from tailrace.proxy.blame import own_failure
from tailrace.proxy.config import ConfigError
from tailrace.proxy.config.secret import without_userinfo
from tailrace.proxy.configuration import Configuration, load
from tailrace.proxy.control import Gone, Refused
from tailrace.proxy.crew import Crew, Member
from tailrace.proxy.discovery.tidings import Tidings
from tailrace.proxy.entry import chain_links
from tailrace.proxy.host import Host
from tailrace.proxy.metrics import Supervision
from tailrace.proxy.orders import Orders
from tailrace.proxy.pipeline import ChainError
from tailrace.proxy.watchfiles import Watch

log = logging.getLogger("tailrace")
LOOK = 1.0
SETTLED = 0.2
PREPARE_LIMIT = 30.0


class Reloader:
    """Reloads one at a time; a refused one leaves everything as it is and says why."""

    def __init__(self, orders: Orders, crew: Crew, host: Host, tidings: Tidings, supervision: Supervision) -> None:
        self._orders = orders
        self._tidings = tidings
        self._host = host
        self._supervision = supervision
        self._crew = crew
        self._lock = asyncio.Lock()
        self._watch = Watch(orders.configuration.files)

    async def follow(self) -> None:
        """Reload whenever a file changes, for ever."""
        while True:
            await asyncio.sleep(LOOK)
            if self._watch.changed():
                # Whoever writes it may not be done yet.
                await asyncio.sleep(SETTLED)
                while self._watch.changed():  # noqa: ASYNC110 - nobody tells when a file is whole
                    await asyncio.sleep(SETTLED)
                await self.reload()

    async def reload(self) -> bool:
        """Read the file again and put it in force; whether that was possible."""
        async with self._lock:
            self._watch.changed()
            try:
                configuration = load(self._orders.configuration.name)
                if configuration.role_name != self._orders.configuration.role_name:
                    raise Refused("the role cannot be changed by a reload: restart")
                await self._agree(configuration)
            except (ConfigError, Refused) as error:
                self._refuse(str(error))
                return False
            except (Exception, SystemExit) as error:
                # Code of plugins runs here, and whatever it does must not end the watch.
                self._refuse(own_failure(error))
                return False
            self._put_in_force(configuration)
            return True

    async def joined(self, member: Member) -> None:
        """Bring a process up to date that was starting while a reload went on, or while workers were drained."""
        try:
            # At once: a reload that goes on may take its time.
            await self._tidings.joined(member)
            await member.channel.ask("drained", names=sorted(self._orders.drained))
            async with self._lock:
                configuration = self._orders.configuration
                if member.text != configuration.text:
                    await member.channel.ask("prepare", text=configuration.text, name=configuration.name)
                    await member.channel.ask("commit", drained=sorted(self._orders.drained))
                    member.text = configuration.text
        except Gone:
            return
        except Refused as error:
            log.error("process %d cannot take up the configuration and is replaced: %s", member.index, error)
            with contextlib.suppress(ProcessLookupError):
                member.process.terminate()

    async def _agree(self, configuration: Configuration) -> None:
        """Let every process prepare; raises Refused after all have let go where one could not."""
        try:
            await self._host.prepare(chain_links(configuration.settings.plugins))
        except (ChainError, OSError, ValueError) as error:
            raise Refused(str(error)) from error
        search = self._tidings.search
        await search.prepare(configuration.settings)
        await self._tidings.tell()
        members = self._crew.serving
        answers = await self._crew.ask("prepare", limit=PREPARE_LIMIT, text=configuration.text, name=configuration.name)
        refusals = [answer for answer in answers.values() if isinstance(answer, Refused)]
        if refusals:
            await self._crew.ask("discard")
            search.discard()
            await self._host.discard()
            raise refusals[0]
        # A process that died meanwhile is replaced by one that gets the new text.
        await self._crew.ask("commit", drained=sorted(self._orders.drained))
        await self._host.commit()
        search.commit()
        for member in members:
            member.text = configuration.text

    def _put_in_force(self, configuration: Configuration) -> None:
        self._orders.adopt(configuration)
        self._watch.follow(configuration.files)
        log.info("configuration %d is in force", self._orders.generation)
        changed = self._orders.restart_needed_for
        if changed:
            log.warning("%s changed: a restart puts that into effect", ", ".join(f"`{key}`" for key in changed))

    def _refuse(self, reason: str) -> None:
        self._orders.last_error = reason = without_userinfo(reason)
        self._supervision.reload_failed()
        for line in reason.splitlines():
            log.error("the changed configuration is refused, the last good one stays: %s", line)
