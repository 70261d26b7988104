"""One question to a worker on the way of a rescue: the sink of an answer that is a JSON object."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import orjson
from tailrace.proxy.fault import bad_answer
from tailrace.proxy.rescue.step import Step

if TYPE_CHECKING:
    from tailrace.proxy.attempt import Attempt
    from tailrace.proxy.rescue.rescue import Rescue

_LARGEST: Final = 64 << 20
"""Bytes; a token takes some seven of them, and text that is all escapes six for each byte."""


class Question(Step):
    """Hands what was answered to `answered`, or a fault to the rescue."""

    def __init__(self, rescue: Rescue, attempt: Attempt, answered: Callable[[dict[str, Any]], None]) -> None:
        super().__init__(rescue, attempt)
        self._answered = answered

    def take(self, data: bytes) -> None:
        self._keep(data, _LARGEST)

    def whole(self) -> None:
        if self._size > _LARGEST:
            self._rescue.failed(bad_answer(f"it has {self._size} bytes"))
            return
        try:
            answer = orjson.loads(b"".join(self._held))
        except orjson.JSONDecodeError:
            answer = None
        if isinstance(answer, dict):
            self._rescue.step(self._answered, answer)
        else:
            self._rescue.failed(bad_answer("it is no JSON object"))
