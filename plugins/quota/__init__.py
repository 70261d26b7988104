"""Limits on requests, tokens, money and what runs at once: reserved at admission, settled at the end."""

from tailrace.plugins.quota.quota import Config, Quota

__all__ = ["Config", "Quota"]
