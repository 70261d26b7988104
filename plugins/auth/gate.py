"""The quick side of `auth`: callers whose credential is remembered, and calls about which nothing has changed."""

from __future__ import annotations

import hmac
import time
from collections.abc import Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from tailrace.plugins.auth.credential import credential_of
from tailrace.plugins.auth.grant import Grant, Grants
from tailrace.proxy.identity import allows
from tailrace.proxy.plugin import Key

if TYPE_CHECKING:
    from tailrace.plugins.auth.view import View
    from tailrace.proxy.call import Call

GRANT: Final[Key[Grant]] = Key("grant")
LEADS_NOWHERE: Final = ("unmatched", "unsupported")


class Gate:
    """Knows the credentials that were good, and what is in force by a `view` once there is one."""

    __slots__ = ("_headers", "grants", "view")

    def __init__(self, headers: Sequence[bytes], grants: Grants) -> None:
        self._headers = headers
        self.grants = grants
        self.view: View | None = None

    def known(self, call: Call) -> Grant | None:
        """What the caller's credential opens, None where it has to be looked up; raises Ambiguous."""
        credential = credential_of(call.head, self._headers)
        if credential is None:
            return None
        digest = sha256(credential).digest()
        grant = self.grants.get(digest)
        if grant is None or not self._holds(grant) or not hmac.compare_digest(grant.digest, digest):
            return None
        return grant

    def _holds(self, grant: Grant) -> bool:
        """Whether what was found once is still so."""
        if grant.table is not None:
            view = self.view
            if view is None or grant.table is not view.table or grant.words[grant.slot] != grant.word or view.stale:
                return False
        return time.time() < grant.until

    def lets_in(self, call: Call, grant: Grant) -> bool:
        """Say who calls; False where that is nobody who may use the route."""
        identity = grant.identity
        if identity.routes is not None:
            route = call.route.name
            if not allows(identity.routes, route) and route not in LEADS_NOWHERE:
                return False
        call[GRANT] = grant
        call.provide(identity)
        return True

    def unchanged(self, call: Call) -> bool:
        """Whether a call was let in by what still stands in the table as it did."""
        if GRANT not in call:
            return False
        grant = call[GRANT]
        return grant.table is None or grant.words[grant.slot] == grant.word
