"""Further paths that are forwarded as they are: what may be written under `routes:`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Final, Literal

from tailrace.proxy.config import At, NotEmpty, setting
from tailrace.proxy.health import HEALTH
from tailrace.proxy.routes import INFERENCE, MODELS
from tailrace.proxy.watch.feed import PATH

Method = Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
_SERVED: Final = frozenset((PATH, *MODELS, *(route.path for route in (*INFERENCE, *HEALTH))))
_PATH: Final = re.compile(r"/[^\s?#*]*\*?")


@dataclass(frozen=True, slots=True, kw_only=True)
class PassThrough:
    """A further path that is forwarded as it is; a path ending in * takes everything below."""

    path: str = setting(help="/path or /path/*")
    pool: str = setting(help="a name under `pools`")
    methods: Annotated[tuple[Method, ...], NotEmpty()] = setting(default=("POST",), help="methods that are forwarded")

    def check(self) -> Iterable[At]:
        """Faults of the path."""
        if not _PATH.fullmatch(self.path):
            yield At(f"'{self.path}': expected /path or /path/*", "path")
        elif _is_served(self.path):
            yield At(f"'{self.path}' is served here, with the plugins: it cannot be passed through", "path")


def twice(routes: Iterable[PassThrough]) -> Iterable[At]:
    """Routes that would never be reached, below the list of all."""
    seen: set[tuple[str, str]] = set()
    for number, route in enumerate(routes):
        for place, method in enumerate(route.methods):
            if (route.path, method) in seen:
                yield At(f"{method} {route.path} stands here twice", "routes", number, "methods", place)
            seen.add((route.path, method))


def _is_served(path: str) -> bool:
    below = (served.removesuffix("*") for served in _SERVED if served.endswith("*"))
    return path in _SERVED or any(path.startswith(prefix) for prefix in below)
