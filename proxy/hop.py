"""How a gateway proves to a sidecar that it is one: a token from the shared `hop_key`, new every half minute.

A token is the HMAC-SHA256 of a coarse time, so it costs nothing per request: the sender computes one header line now
and then, the receiver the few tokens that count now. Whoever reads a token on the wire may use it until it is too old:
where others can read the wire, hops speak TLS.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Callable

HEADER = b"x-tailrace-hop"
REFUSED = "hop_key_refused"
"""The error code of a sidecar that does not know the caller."""
STEP = 30.0
AROUND = 3
"""How many steps before and after the present one count: clocks may differ by 90 s."""
SHORTEST = 16
"""Characters of a key below which it could be guessed from one token."""


class HopKey:
    """One shared key, for sending and for checking."""

    __slots__ = ("_clock", "_key", "_now", "_valid")

    def __init__(self, key: str, clock: Callable[[], float] = time.time) -> None:
        self._key = key.encode()
        self._clock = clock
        self._now = -1
        self._valid: dict[bytes, bytes] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HopKey) and hmac.compare_digest(self._key, other._key)

    def __hash__(self) -> int:
        return hash(self._key)

    def token(self) -> bytes:
        """What proves it now."""
        step = self._step()
        return b"%d.%b" % (step, self._mac(step))

    def line(self) -> bytes:
        """The token as a header line."""
        return b"%b: %b\r\n" % (HEADER, self.token())

    def until_next(self) -> float:
        """Seconds until another token is due."""
        return STEP - self._clock() % STEP

    def admits(self, token: bytes | None) -> bool:
        """Whether a token was made with this key, and lately."""
        if token is None:
            return False
        step = self._step()
        if step != self._now:
            self._valid = {b"%d" % near: self._mac(near) for near in range(step - AROUND, step + AROUND + 1)}
            self._now = step
        name, _, mac = token.partition(b".")
        # The step is public and finds the token; what is secret in it is compared in constant time.
        right = self._valid.get(name)
        return right is not None and hmac.compare_digest(mac, right)

    def _step(self) -> int:
        return int(self._clock() // STEP)

    def _mac(self, step: int) -> bytes:
        return hmac.new(self._key, b"tailrace hop %d" % step, hashlib.sha256).hexdigest().encode()
