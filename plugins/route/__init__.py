"""Which worker an attempt goes to: by predicted time to first token, or by one of three simple policies."""

from tailrace.plugins.route.plugin import Route
from tailrace.plugins.route.settings import Config

__all__ = ["Config", "Route"]
