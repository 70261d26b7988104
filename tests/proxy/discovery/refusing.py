"""A plugin that lets nobody in: `refusing:Refusing` in a YAML."""

from __future__ import annotations

from typing import Any

from sidecars import NoSettings
from tailrace.proxy.fault import Reject
from tailrace.proxy.plugin import Plugin


class Refusing(Plugin[NoSettings]):
    """Refuses every call at its head."""

    Config = NoSettings

    def on_open(self, call: Any) -> None:
        """Refuse it."""
        raise Reject(403, "nobody", "Nobody is let in.")
