"""The plugin `trace`: each call's place in a trace, and the spans of those that are kept."""

from tailrace.plugins.trace.plugin import Trace
from tailrace.plugins.trace.settings import Config

__all__ = ["Config", "Trace"]
