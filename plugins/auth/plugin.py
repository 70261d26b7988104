"""The `auth` plugin in a process: who calls is looked up in shared memory, and nothing is waited for.

A call's credential is digested, looked up among the grants of its process and, the first time, in the host's table of
keys. Each use compares one word of that table with what it was, so a key that was revoked, disabled or changed is
noticed by the next call of every process, whatever is remembered.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from tailrace.plugins.auth.credential import Ambiguous, credential_of
from tailrace.plugins.auth.gate import GRANT, LEADS_NOWHERE, Gate
from tailrace.plugins.auth.grant import Grant, Grants
from tailrace.plugins.auth.keeper import Keeper
from tailrace.plugins.auth.mint import digest_of
from tailrace.plugins.auth.record import FOREVER, Status, identity_of
from tailrace.plugins.auth.settings import Anonymous
from tailrace.plugins.auth.settings import Config as _Config
from tailrace.plugins.auth.tokens import Bad, NotEnough, NotNow, Tokens
from tailrace.plugins.auth.verdict import (
    BAD_TOKEN,
    DISABLED,
    EXPIRED,
    MISSING,
    REVOKED,
    SCOPE,
    UNKNOWN,
    UNREADABLE,
    UNVERIFIABLE,
    Verdict,
    no_model,
    no_route,
)
from tailrace.plugins.auth.view import View
from tailrace.proxy.control import Gone, Refused
from tailrace.proxy.identity import Identity, allows
from tailrace.proxy.plugin import Plugin

if TYPE_CHECKING:
    from tailrace.proxy.call import Call
    from tailrace.proxy.fault import Reject
    from tailrace.proxy.ground import Places
    from tailrace.proxy.host import HostPart
    from tailrace.proxy.reply import Reply

log = logging.getLogger("tailrace")
LOOK: Final = 0.05
"""Seconds between two looks at which table is in force."""


class Auth(Plugin[_Config]):
    """Refuses whoever may not call, and provides the Identity of who may."""

    Config = _Config
    provides = (Identity,)

    def __init__(self, config: _Config) -> None:
        super().__init__(config)
        self._headers = tuple(name.lower().encode() for name in config.headers)
        self._anonymous = None if config.anonymous is None else _anonymous(config.anonymous)
        self._single = None if config.single_key is None else _single(config.single_key.reveal())
        self._grants = Grants()
        self._gate = Gate(self._headers, self._grants)
        self._refused: dict[str, int] = {}
        self._view: View | None = None
        self._tokens = Tokens(config.jwt, self._refresh) if config.jwt else None
        self._asking: dict[str, asyncio.Task[None]] = {}

    def host_part(self, places: Places) -> AbstractAsyncContextManager[HostPart]:
        """What keeps the keys."""
        return Keeper.running(self.config, places)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Follow the host part's tables."""
        self._view = View(self.ground.places.shared, self.config.stale_for, self._grants, self._tokens)
        self._gate.view = self._view
        self._view.look()
        self._timer = asyncio.get_running_loop().call_later(LOOK, self._look, self._view)
        try:
            yield
        finally:
            self._timer.cancel()
            for task in self._asking.values():
                task.cancel()

    def _look(self, view: View) -> None:
        try:
            view.look()
        finally:
            self._timer = asyncio.get_running_loop().call_later(LOOK, self._look, view)

    def on_open(self, call: Call) -> None:
        """Find out who calls; refuse whoever may not."""
        try:
            grant = self._gate.known(call) or self._looked_up(call)
        except Ambiguous as several:
            raise self._refuse(several.verdict) from None
        if grant is not None and not self._gate.lets_in(call, grant):
            raise self._refuse(no_route(call.route.name))

    def on_request(self, call: Call) -> Reply | None:
        """The model is known now, and the body may have taken its time."""
        if not self._gate.unchanged(call):
            self.recheck(call)
        if GRANT in call:
            grant = call[GRANT]
            if grant.restricted and call.model and not allows(grant.identity.models, call.model):
                raise self._refuse(no_model(call.model))
        return None

    def recheck(self, call: Call) -> None:
        """Refuse a call whose key was revoked since. What only ran out meanwhile was good when the call came."""
        if self._gate.unchanged(call):
            return
        if GRANT in call:
            self._check_again(call[GRANT])
        elif not _is_local(call):
            # A plugin that answers preflights stands further up; what got as far as here would go to a worker.
            raise self._refuse(MISSING)

    def _check_again(self, grant: Grant) -> None:
        table = self._view.table if self._view is not None else None
        slot = -1 if table is None else table.slot_of(grant.digest)
        status = 0 if table is None or slot < 0 else table.words[slot] & 0xFF
        if status != Status.LIVE:
            raise self._refuse(DISABLED if status == Status.DISABLED else REVOKED)

    def _looked_up(self, call: Call) -> Grant | None:
        """Whoever is not remembered; None for a preflight."""
        credential = credential_of(call.head, self._headers)
        return self._without(call) if credential is None else self._found(credential, sha256(credential).digest())

    def _without(self, call: Call) -> Grant | None:
        """Who a caller without a credential is; None for a preflight, which browsers send without any."""
        if self._anonymous is not None:
            return self._anonymous
        head = call.head
        if head.method == "OPTIONS" and (_is_local(call) or head.get(b"access-control-request-method") is not None):
            return None
        raise self._refuse(MISSING)

    def _found(self, credential: bytes, digest: bytes) -> Grant:
        """What a credential opens that is not remembered, or not as it is now."""
        self._grants.forget(digest)
        single = self._single
        if single is not None and hmac.compare_digest(single.digest, digest):
            return single
        grant = self._stored(digest)
        if grant is None:
            if self._tokens is None or b"." not in credential:
                raise self._refuse(UNREADABLE if self._view is None or self._view.stale else UNKNOWN)
            grant = self._verified(self._tokens, credential, digest)
        self._grants.keep(grant)
        return grant

    def _stored(self, digest: bytes) -> Grant | None:
        view = self._view
        table = view.table if view is not None else None
        slot = -1 if table is None else table.slot_of(digest)
        if view is None or table is None or slot < 0:
            return None
        if view.stale:
            raise self._refuse(UNREADABLE)
        word = table.words[slot]
        if word & 0xFF != Status.LIVE:
            raise self._refuse(DISABLED if word & 0xFF == Status.DISABLED else REVOKED)
        stored = table.entry(slot, word)
        if time.time() >= stored.until:
            raise self._refuse(EXPIRED)
        try:
            identity = identity_of(stored.id, stored.grants, stored.until)
        except ValueError as error:
            log.error("what is stored of the key '%s' makes no sense, so that it opens nothing: %s", stored.id, error)
            raise self._refuse(UNKNOWN) from None
        return Grant(identity, digest, stored.until, table, slot, word)

    def _verified(self, tokens: Tokens, token: bytes, digest: bytes) -> Grant:
        try:
            identity, until = tokens.verify(token)
        except Bad:
            raise self._refuse(BAD_TOKEN) from None
        except NotEnough:
            raise self._refuse(SCOPE) from None
        except NotNow:
            raise self._refuse(UNVERIFIABLE) from None
        return Grant(identity, digest, until)

    def _refuse(self, verdict: Verdict) -> Reject:
        self._refused[verdict.reason] = self._refused.get(verdict.reason, 0) + 1
        return verdict.reject()

    def _refresh(self, issuer: str) -> None:
        """Have the host part fetch an issuer's keys, which it does once a cooldown, whoever asks."""
        asking = self._asking.get(issuer)
        if asking is None or asking.done():
            self._asking[issuer] = asyncio.ensure_future(self._ask(issuer))

    async def _ask(self, issuer: str) -> None:
        with contextlib.suppress(Refused, Gone):
            await self.ground.ask("refresh", issuer=issuer)
        await asyncio.sleep(LOOK)

    def metrics(self) -> Iterator[tuple[str, Mapping[str, str], float]]:
        """Refusals by reason; one process of the host says how it stands with the keys."""
        for reason, count in self._refused.items():
            yield "refused_total", {"reason": reason}, count
        view = self._view
        if view is not None and self.ground.seat == 0:
            yield "keys", {}, view.keys
            yield "table_age_seconds", {}, view.age
            for issuer, age in self._tokens.ages() if self._tokens is not None else ():
                yield "key_set_age_seconds", {"issuer": issuer}, age


def _is_local(call: Call) -> bool:
    """Whether the gateway itself answers, on a route that there is."""
    return call.route.local is not None and call.route.name not in LEADS_NOWHERE


def _anonymous(settings: Anonymous) -> Grant:
    identity = Identity(
        key="",
        tenant=settings.tenant,
        tags=settings.tags,
        models=settings.models,
        routes=settings.routes,
        classes=settings.classes,
        limits=settings.limits,
        source="anonymous",
    )
    return Grant(identity, b"", FOREVER)


def _single(key: str) -> Grant:
    return Grant(Identity(key="single", tenant="default", source="single"), digest_of(key.encode()), FOREVER)
