"""The admin port's connections: what is no request is told so, and nothing of it is repeated.

aiohttp says what it could not read, and with it the beginning of whatever that was, such as a credential.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import RequestHandler
from tailrace.proxy.admin.noise import Quieter

if TYPE_CHECKING:
    from aiohttp.web_request import BaseRequest

log = logging.getLogger("tailrace")
NO_REQUEST: Final = "The request is not valid HTTP, or larger than the admin port takes.\n"


class TerseHandler(RequestHandler):
    """One connection."""

    __slots__ = ()

    def handle_error(
        self,
        request: BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer what is wrong, in words of our own where a client is to blame."""
        told = NO_REQUEST if isinstance(exc, HttpProcessingError) else message
        return super().handle_error(request, status, exc, told)


class TerseServer(web.Server):
    """Makes such connections."""

    quieter: Quieter

    def __call__(self) -> RequestHandler:
        """Another one."""
        # As an AppRunner's own arguments, which nobody has given types.
        given: dict[str, Any] = {"access_log": None, "logger": self.quieter}
        return TerseHandler(self, loop=asyncio.get_running_loop(), **given)


class TerseRunner(web.AppRunner):
    """Runs an application on them."""

    async def _make_server(self) -> web.Server:
        made = await super()._make_server()
        server = TerseServer(made.request_handler, request_factory=made.request_factory)
        server.quieter = Quieter(log)
        return server
