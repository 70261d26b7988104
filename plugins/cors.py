"""Lets pages of other origins call the gateway from a browser.

A preflight is answered here; refusals and errors bear the headers too, or a page could not read them. An origin is
repeated to the browser only where the configuration lists it or a pattern of it: `*` stays `*`, and goes with no
credentials. An origin that is not allowed gets no header but `Vary`, which caches need.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from tailrace.proxy.config import At, AtMost, Seconds, setting
from tailrace.proxy.plugin import Plugin
from tailrace.proxy.reply import Reply

if TYPE_CHECKING:
    from tailrace.proxy.call import Call
    from tailrace.proxy.head import Head

_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://(?:\*\.)?(?:[a-z0-9_.-]+|\[[0-9a-f:.]+\])(?::(?:[0-9]{1,5}|\*))?")
_ASKED = re.compile(rb"[ \t]*[!#$%&'*+\-.^_`|~0-9A-Za-z]+[ \t]*(?:,[ \t]*[!#$%&'*+\-.^_`|~0-9A-Za-z]+[ \t]*)*")
_LONGEST = 4096
_MARKS = frozenset(
    {b"access-control-allow-origin", b"access-control-allow-credentials", b"access-control-expose-headers"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Who may do what."""

    origins: tuple[str, ...] = setting(
        help="origins: https://app.example, patterns: https://*.example, http://localhost:*; or * for all"
    )
    methods: tuple[str, ...] = setting(default=("GET", "POST", "OPTIONS"), help="methods that pages may use")
    headers: tuple[str, ...] = setting(
        default=("*",), help="request headers that pages may send; * for whatever they ask", why="SDKs add their own"
    )
    expose: tuple[str, ...] = setting(
        default=("x-request-id", "request-id", "retry-after", "retry-after-ms", "x-should-retry"),
        help="answer headers that pages may read",
        why="SDKs retry by them",
    )
    credentials: bool = setting(default=False, help="whether browsers may send cookies", why="keys need none")
    max_age: Annotated[Seconds, AtMost(86400)] = setting(
        default=600.0, help="how long a browser may remember a preflight", why="one round trip each is felt in TTFT"
    )

    def check(self) -> Iterable[At]:
        """Faults of origins and names, and what browsers or prudence forbid together."""
        for number, origin in enumerate(self.origins):
            if origin not in ("*", "null") and not _ORIGIN.fullmatch(origin.lower()):
                text = f"'{origin}' is no origin; write https://HOST, https://*.DOMAIN, http://HOST:PORT or *"
                yield At(text, "origins", number)
        for key in ("methods", "headers", "expose"):
            for number, name in enumerate(getattr(self, key)):
                if not _TOKEN.fullmatch(name):
                    yield At(f"'{name}' is no name of a method or header", key, number)
        if self.credentials and "*" in self.origins:
            yield At("'*' does not go with credentials; list the origins", "origins")
        if self.credentials and "null" in self.origins:
            yield At("'null' does not go with credentials; any sandboxed page has that origin", "origins")
        if self.credentials and "*" in self.expose:
            yield At("'*' does not go with credentials; list the headers", "expose")


_Config = Config  # inside the class the name means its attribute


class Cors(Plugin[Config]):
    """Answers preflights and marks answers."""

    Config = Config

    def __init__(self, config: _Config) -> None:
        super().__init__(config)
        listed = [origin.lower() for origin in config.origins]
        self._all = "*" in listed
        self._exact = frozenset(origin.encode() for origin in listed)
        self._patterns = tuple(_pattern(origin) for origin in listed if "*" in origin and origin != "*")
        self._preflight = [
            (b"access-control-allow-methods", ", ".join(config.methods).encode()),
            (b"access-control-max-age", b"%d" % config.max_age),
        ]
        self._any_header = "*" in config.headers
        self._headers = ", ".join(config.headers).encode()
        self._marks = [(b"access-control-expose-headers", ", ".join(config.expose).encode())] if config.expose else []
        if config.credentials:
            self._marks.append((b"access-control-allow-credentials", b"true"))

    def _allowed(self, origin: bytes) -> bool:
        low = origin.lower()
        return self._all or low in self._exact or any(pattern.fullmatch(low) for pattern in self._patterns)

    def on_request(self, call: Call) -> Reply | None:
        """Answer a preflight of an allowed origin; anything else goes on."""
        head = call.head
        if head.method != "OPTIONS" or head.get(b"access-control-request-method") is None:
            return None
        origin = head.get(b"origin")
        if origin is None or not self._allowed(origin):
            return None
        headers = [*self._preflight, (b"vary", b"Access-Control-Request-Headers")]
        asked = head.get(b"access-control-request-headers")
        if not self._any_header:
            headers.append((b"access-control-allow-headers", self._headers))
        elif asked is not None and len(asked) <= _LONGEST and _ASKED.fullmatch(asked):
            headers.append((b"access-control-allow-headers", asked))
        return Reply(204, b"", headers=headers, source="preflight")

    def on_answer(self, call: Call, head: Head) -> None:
        """Mark an answer for the page that asked; one for nobody in particular says that others get another."""
        origin = call.head.get(b"origin")
        # A worker's own word on it would be a second one.
        head.headers = [pair for pair in head.headers if pair[0] not in _MARKS]
        varies = _varies(head)
        if self._all:
            _say_varies(head, varies)
            if origin is not None:
                head.headers.append((b"access-control-allow-origin", b"*"))
                head.headers.extend(self._marks)
            return
        _say_varies(head, [*varies, b"Origin"])
        if origin is not None and self._allowed(origin):
            head.headers.append((b"access-control-allow-origin", origin))
            head.headers.extend(self._marks)


def _varies(head: Head) -> list[bytes]:
    """What an answer depends on but for the origin."""
    names = [name.strip() for key, value in head.headers if key == b"vary" for name in value.split(b",")]
    return [name for name in names if name and name.lower() != b"origin"]


def _say_varies(head: Head, names: list[bytes]) -> None:
    head.remove(b"vary")
    if names:
        head.headers.append((b"vary", b", ".join(names)))


def _pattern(origin: str) -> re.Pattern[bytes]:
    """A pattern's whole match: * is one or more labels in front of a domain, or any port."""
    text = re.escape(origin)
    text = text.replace(re.escape("://*."), r"://(?:[a-z0-9_-]{1,63}\.){1,20}")
    return re.compile(text.replace(re.escape(":*"), r":[0-9]{1,5}").encode())
