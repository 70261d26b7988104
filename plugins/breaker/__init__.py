"""Workers that fail, hang or are slower than their like get no calls for a while, and are let in again with care."""

from tailrace.plugins.breaker.plugin import Breaker

__all__ = ["Breaker"]
