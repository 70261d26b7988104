"""What is still there of an answer that is out of date: better than none, where no worker can give one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tailrace.proxy.reply import Reply


class Remembered:
    """A typed fact of a call: `reply` gives the kept answer that is out of date, None where there is none."""

    __slots__ = ("reply",)

    def __init__(self, reply: Callable[[], Reply | None]) -> None:
        self.reply = reply
