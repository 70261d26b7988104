"""Responses that can be asked for again: the last ones, as a vLLM that stores them keeps them."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from tailrace.worker.sim.errors import Refusal
from tailrace.worker.sim.exchange import Exchange

if TYPE_CHECKING:
    from tailrace.worker.sim.engine import Engine

PREFIX = "/v1/responses/"
_MOST = 256


class Kept:
    """The bodies of finished responses by their id."""

    def __init__(self) -> None:
        self._bodies: OrderedDict[str, bytes] = OrderedDict()

    def keep(self, response_id: str, body: bytes) -> None:
        """Keep one, in place of the oldest where there are many."""
        self._bodies[response_id] = body
        if len(self._bodies) > _MOST:
            self._bodies.popitem(last=False)

    def find(self, response_id: str) -> bytes:
        """The body; a Refusal says that there is none."""
        body = self._bodies.get(response_id)
        if body is None:
            raise _refusal(404, f"Response with id '{response_id}' not found.")
        return body


def retrieve(engine: Engine, exchange: Exchange) -> None:
    """Show a response again."""
    exchange.reply(200, engine.kept.find(exchange.request.path.removeprefix(PREFIX)))


def cancel(engine: Engine, exchange: Exchange) -> None:
    """Nothing that is kept still runs: only background responses could."""
    engine.kept.find(exchange.request.path.removeprefix(PREFIX).removesuffix("/cancel"))
    raise _refusal(400, "Cannot cancel a synchronous response.")


def _refusal(status: int, message: str) -> Refusal:
    return Refusal(status, message, "invalid_request_error", "response_id")
