"""The plugin `deadline`: how much time a call has, and what becomes of one that cannot be in time."""

from tailrace.plugins.deadline.plugin import Deadline
from tailrace.plugins.deadline.settings import Config

__all__ = ["Config", "Deadline"]
