"""A second attempt beside one that is slower than most: the quicker one is shown, the other is cancelled."""

from tailrace.plugins.hedge.plugin import Hedge

__all__ = ["Hedge"]
