"""What a stride waits for inside the relay: one value, handed over in the very callback that brings it."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from tailrace.proxy.stride import Stride

T = TypeVar("T")


class Signal(Generic[T]):
    """One value or exception that one stride waits for; settling it resumes the stride before `set` returns."""

    __slots__ = ("_error", "_value", "settled", "stride")
    _value: T

    def __init__(self) -> None:
        self.settled = False
        self.stride: Stride | None = None
        self._error: BaseException | None = None

    def set(self, value: T) -> None:
        """Settle with a value; later calls change nothing."""
        if not self.settled:
            self.settled = True
            self._value = value
            if self.stride is not None:
                self.stride.resume()

    def settle(self: Signal[None]) -> None:
        """Settle where the value says nothing."""
        self.set(None)

    def fail(self, error: BaseException) -> None:
        """Settle with an exception."""
        if not self.settled:
            self.settled = True
            self._error = error
            if self.stride is not None:
                self.stride.resume()

    def __await__(self) -> Generator[Signal[T], None, T]:
        if not self.settled:
            yield self
        if self._error is not None:
            raise self._taken()
        return self._value

    def _taken(self) -> BaseException:
        """The exception, let go of: its traceback refers to this signal, and a circle is left to the collector."""
        error, self._error = self._error, None
        assert error is not None
        return error
