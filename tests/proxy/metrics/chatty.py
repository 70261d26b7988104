"""Plugins that fail, and plugins with metrics of their own, for a gateway of some YAML."""

import asyncio
from dataclasses import dataclass

from tailrace.proxy.plugin import Plugin


@dataclass(frozen=True, slots=True, kw_only=True)
class Nothing:
    """No configuration."""


class Broken(Plugin[Nothing]):
    """Fails whenever a call is over."""

    Config = Nothing

    def on_complete(self, call, outcome):
        raise RuntimeError("on purpose")


class Late(Plugin[Nothing]):
    """Waits for what never comes."""

    Config = Nothing

    async def on_request(self, call):
        await asyncio.get_running_loop().create_future()


class Dropper(Plugin[Nothing]):
    """Shows a plain number, as the access log does."""

    Config = Nothing
    dropped = 0

    def on_complete(self, call, outcome):
        self.dropped += 1


class Counting(Plugin[Nothing]):
    """Gives what `yields` says."""

    Config = Nothing

    def __init__(self, config):
        super().__init__(config)
        self.yields = []

    def metrics(self):
        """What the test wants."""
        yield from self.yields

    def on_open(self, call):
        """Take part in calls."""
