"""Verifies the tokens of callers against the issuers of the configuration, in one process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import jwt
import orjson
from tailrace.plugins.auth.jwk import good_for, loaded
from tailrace.plugins.auth.record import grants_of
from tailrace.plugins.auth.settings import Grants, Issuer
from tailrace.plugins.auth.structure import Malformed, parts_of
from tailrace.proxy.identity import Identity

_LONGEST_NAME: Final = 256


class Bad(Exception):  # noqa: N818 - a verdict
    """The token opens nothing."""


class NotNow(Exception):  # noqa: N818 - a verdict
    """Whether it does cannot be said yet: its issuer's keys are missing, too old, or do not have this one."""


class NotEnough(Exception):  # noqa: N818 - a verdict
    """It is genuine, and allows nothing here."""


class _PublicKey(NamedTuple):
    kid: str | None
    algorithms: Sequence[str]
    key: Any


class _Known:
    """An issuer and the keys known of it."""

    def __init__(self, issuer: Issuer) -> None:
        self.issuer = issuer
        self.keys: list[_PublicKey] = []
        self.plain: list[dict[str, str]] = []
        self.fetched = 0.0
        self.required = list({"exp", "iss", "aud", *issuer.require})

    def key_for(self, kid: str | None, algorithm: str, now: float) -> Any:
        """What a token is verified with; raises Bad or NotNow."""
        issuer = self.issuer
        if algorithm not in issuer.algorithms:
            raise Bad
        if issuer.secret is not None:
            return issuer.secret.reveal()
        if now - self.fetched > issuer.max_age:
            raise NotNow
        fitting = [each for each in self.keys if each.kid == kid or kid is None]
        if kid is not None and not fitting and now - self.fetched >= issuer.cooldown:
            raise NotNow
        fitting = [each for each in fitting if algorithm in each.algorithms]
        if len(fitting) != 1:
            raise Bad
        return fitting[0].key


class Tokens:
    """`refresh` is called with an issuer's name where one of its tokens was signed by a key that is not known."""

    def __init__(self, issuers: Sequence[Issuer], refresh: Callable[[str], None]) -> None:
        self._known = {issuer.issuer: _Known(issuer) for issuer in issuers}
        self._refresh = refresh

    def take(self, content: bytes) -> bool:
        """Go by the key sets that the host part has now; whether there is another key in any, or one less."""
        changed = False
        for each in orjson.loads(content):
            known = self._known.get(each["issuer"])
            if known is not None:
                known.fetched = each["fetched"]
                if each["keys"] != known.plain:
                    known.plain, changed = each["keys"], True
                    known.keys = [_PublicKey(key.get("kid"), good_for(key), loaded(key)) for key in known.plain]
        return changed

    def ages(self) -> Iterator[tuple[str, float]]:
        """How old the keys of each issuer are that has some, in seconds."""
        now = time.time()
        for name, known in self._known.items():
            if known.fetched:
                yield name, now - known.fetched

    def verify(self, token: bytes) -> tuple[Identity, float]:
        """Whose a token is, and until when; raises Bad, NotNow or NotEnough."""
        try:
            parts = parts_of(token)
        except Malformed:
            raise Bad from None
        name = parts.claims.get("iss")
        known = self._known.get(name) if isinstance(name, str) else None
        if known is None:
            raise Bad
        issuer = known.issuer
        try:
            key = known.key_for(parts.kid, parts.algorithm, time.time())
        except NotNow:
            self._refresh(issuer.issuer)
            raise
        try:
            claims = jwt.decode(
                token,
                key,
                algorithms=[parts.algorithm],
                audience=issuer.audience,
                issuer=issuer.issuer,
                leeway=issuer.leeway,
                options={"require": known.required},
            )
            until = float(claims["exp"]) + issuer.leeway
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError):
            raise Bad from None
        return _identity(issuer, claims, until), until


def _identity(issuer: Issuer, claims: Mapping[str, Any], until: float) -> Identity:
    names = issuer.claims
    caller = claim(claims, names.key)
    if not isinstance(caller, str) or not 0 < len(caller) <= _LONGEST_NAME:
        raise Bad
    tenant = claim(claims, names.tenant) if names.tenant is not None else None
    plain: dict[str, Any] = {"tenant": issuer.tenant if tenant is None else tenant}
    plain["tags"] = _texts(claim(claims, names.tags)) or []
    plain["classes"] = _texts(claim(claims, names.service_class))
    plain["limits"] = claim(claims, names.limits)
    if issuer.scopes is not None:
        _widen(plain, issuer.scopes, _texts(claim(claims, names.scopes)) or ())
    try:
        return Identity(key=f"{issuer.issuer}#{caller}", expires=until, source="jwt", **grants_of(plain))
    except ValueError:
        raise Bad from None


def _widen(plain: dict[str, Any], scopes: Mapping[str, Grants], held: Sequence[str]) -> None:
    """All that the scopes of a token allow, taken together."""
    found = [scopes[scope] for scope in held if scope in scopes]
    if not found:
        raise NotEnough
    plain["models"] = [name for grants in found for name in grants.models]
    plain["routes"] = [name for grants in found for name in grants.routes]
    plain["tags"] += [tag for grants in found for tag in grants.tags]
    if plain["classes"] is None:
        plain["classes"] = [name for grants in found for name in grants.classes]


def claim(claims: Mapping[str, Any], name: str | None) -> Any:
    """A claim by its name, or by a path of names with dots between them; None where there is none."""
    if name is None or name in claims:
        return None if name is None else claims[name]
    found: Any = claims
    for part in name.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def _texts(value: Any) -> list[Any] | None:
    if isinstance(value, str):
        return value.split()
    return value if isinstance(value, list) else None
