"""What the `auth` plugin's entry in the YAML says."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Final, Literal

from tailrace.plugins.auth.keys_file import load
from tailrace.proxy.config import (
    At,
    AtLeast,
    AtMost,
    ConfigError,
    NotEmpty,
    Seconds,
    Secret,
    setting,
)
from tailrace.proxy.headers import CREDENTIAL, request_rule
from tailrace.proxy.limit import Limit

# Verified on the event loop, at a fifth of a millisecond or less each, once a token. ES384 and ES512 take several times
# as long, and whoever sends tokens that are none would stall every stream with them.
Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "EdDSA", "HS256", "HS384", "HS512"]
_SHORTEST_KEY: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Anonymous:
    """Who callers without a credential are."""

    tenant: Annotated[str, NotEmpty()] = setting(default="anonymous", help="whose use it counts as")
    tags: tuple[str, ...] = setting(default=(), help="tags of theirs")
    models: tuple[str, ...] | None = setting(default=None, help="models that they may use; * stands for any text")
    routes: tuple[str, ...] | None = setting(default=None, help="names of routes that they may use")
    classes: tuple[str, ...] | None = setting(default=None, help="classes of service that they may ask for")
    limits: tuple[Limit, ...] = setting(default=(), help="bounds of what all of them together use")


@dataclass(frozen=True, slots=True, kw_only=True)
class Grants:
    """What one scope of a token allows."""

    models: tuple[str, ...] = setting(default=("*",), help="models; * stands for any text")
    routes: tuple[str, ...] = setting(default=("*",), help="names of routes")
    classes: tuple[str, ...] = setting(default=("*",), help="classes of service")
    tags: tuple[str, ...] = setting(default=(), help="tags that come with it")


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """Which claims say what; a dot leads into an object."""

    key: str = setting(default="sub", help="who calls, required")
    tenant: str | None = setting(default=None, help="the tenant; without it, `tenant` of the issuer")
    scopes: str = setting(default="scope", help="scopes: text with blanks between them, or a list")
    tags: str | None = setting(default=None, help="a list of tags, or one")
    service_class: str | None = setting(default=None, key="class", help="the class of service, or a list of them")
    limits: str | None = setting(default=None, help="a list of limits, written as those of keys")


@dataclass(frozen=True, slots=True, kw_only=True)
class Issuer:
    """Who may sign tokens, and what they are good for here."""

    issuer: Annotated[str, NotEmpty()] = setting(help="the `iss` of its tokens, exactly")
    audience: Annotated[tuple[str, ...], NotEmpty()] = setting(help="what `aud` must name one of")
    algorithms: Annotated[tuple[Algorithm, ...], NotEmpty()] = setting(
        default=("RS256", "ES256"), help="what it signs with, and nothing else"
    )
    jwks: str | None = setting(default=None, help="where its public keys are: an https URL")
    jwks_file: Path | None = setting(default=None, help="or a file of them")
    secret: Secret | None = setting(default=None, help="the shared secret, for HS algorithms only")
    leeway: Annotated[Seconds, AtMost(600)] = setting(default=30.0, help="how far clocks may differ")
    require: tuple[str, ...] = setting(default=(), help="claims that a token must have beside exp, iss and aud")
    claims: Claims = setting(default_factory=Claims, help="which claims say what")
    tenant: str | None = setting(default=None, help="the tenant of tokens that name none")
    scopes: dict[str, Grants] | None = setting(
        default=None, help="what each scope allows; a token with none of them is refused"
    )
    refresh: Annotated[Seconds, AtLeast(10)] = setting(default=300.0, help="how often its keys are fetched")
    cooldown: Annotated[Seconds, AtLeast(0.1)] = setting(
        default=10.0, help="and how soon again, for a token by a key that nobody knows", why="such tokens cost nothing"
    )
    max_age: Annotated[Seconds, AtLeast(60)] = setting(
        default=86_400.0, help="how long the last good keys serve while no others can be had"
    )

    def check(self) -> Iterable[At | str]:
        """Keys and algorithms that do not go together."""
        if sum(way is not None for way in (self.jwks, self.jwks_file, self.secret)) != 1:
            yield "give one of `jwks`, `jwks_file` (public keys) and `secret` (for HS algorithms)"
            return
        for number, algorithm in enumerate(self.algorithms):
            if algorithm.startswith("HS") != (self.secret is not None):
                takes = "a `secret`" if algorithm.startswith("HS") else "public keys"
                yield At(f"{algorithm} takes {takes}", "algorithms", number)
        least = max((int(name[2:]) // 8 for name in self.algorithms if name.startswith("HS")), default=0)
        if self.secret is not None and len(self.secret.reveal().encode()) < least:
            yield At(f"give at least {least} bytes: any token gives a shorter one away", "secret", bare=True)
        if self.jwks is not None and not self.jwks.startswith("https://") and not _is_local(self.jwks):
            yield At("must be an https URL: on another way, anybody could put in keys of their own", "jwks")
        if self.tenant is None and self.claims.tenant is None:
            yield "say whose tokens they are: `tenant`, or the claim that names it (`claims: {tenant: org}`)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Who may call. Without anything, only keys made by `tailrace keys create` open the door."""

    keys: Path | None = setting(default=None, help="a YAML file of keys, beside those of the database")
    database: Secret | None = setting(
        default=None, help="postgresql://…, where keys are; without it, a file in the state folder"
    )
    headers: Annotated[tuple[str, ...], NotEmpty()] = setting(
        default=("authorization", "x-api-key"), help="where credentials may stand; all that do must be the same"
    )
    jwt: tuple[Issuer, ...] = setting(default=(), help="issuers of tokens")
    anonymous: Anonymous | None = setting(default=None, help="who callers without a credential are; none may, else")
    single_key: Secret | None = setting(default=None, help="one key for everything, for installations of one user")
    stale_for: Seconds = setting(
        default=3600.0,
        help="how long the last known keys serve while the database is down",
        why="a revocation cannot be heard of then",
    )

    def check_headers(self) -> Iterable[At]:
        """Headers that would go on to the worker."""
        for number, name in enumerate(self.headers):
            if request_rule(name.lower().encode(errors="replace")) != CREDENTIAL:
                text = f"'{name}' is no header that stays here; names such as x-team-api-key or x-auth-token do"
                yield At(text, "headers", number)

    def check_single_key(self) -> Iterable[At]:
        """A key that can be guessed."""
        if self.single_key is not None and len(self.single_key.reveal()) < _SHORTEST_KEY:
            yield At(f"give at least {_SHORTEST_KEY} characters", "single_key", bare=True)

    def check_issuers(self) -> Iterable[At]:
        """One issuer, one entry."""
        names = [issuer.issuer for issuer in self.jwt]
        for number, name in enumerate(names):
            if name in names[:number]:
                yield At(f"'{name}' stands further up already", "jwt", number)

    def look(self) -> Iterable[At]:
        """A file of keys that cannot be used, a driver that is not there."""
        if self.database is not None and find_spec("psycopg") is None:
            yield At("PostgreSQL needs the extra: pip install 'tailrace[postgres]'", "database")
        if self.keys is not None:
            try:
                load(self.keys)
            except ConfigError as error:
                yield At(str(error.flaws[0]), "keys")


def _is_local(url: str) -> bool:
    scheme, _, rest = url.partition("://")
    host = rest.partition("/")[0].rpartition(":")[0] or rest.partition("/")[0]
    return scheme == "http" and host in ("127.0.0.1", "localhost", "[::1]")
