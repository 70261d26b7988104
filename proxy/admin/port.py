"""The admin port as an aiohttp application on one socket of the supervisor."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
from aiohttp import web
from tailrace.proxy.admin.guard import json_errors, problem, token_needed
from tailrace.proxy.admin.overview import Overview
from tailrace.proxy.config import Secret

LARGEST_BODY = 64 << 10


class AdminPort:
    """Answers on `sock` from `start` to `stop`."""

    def __init__(
        self, overview: Overview, sock: socket.socket, token: Secret | None, scrape: Callable[[], tuple[str, bytes]]
    ) -> None:
        self._overview = overview
        self._socket = sock
        self._path: str = sock.getsockname() if sock.family == socket.AF_UNIX else ""
        self._scrape = scrape
        app = web.Application(middlewares=[json_errors, token_needed(token)], client_max_size=LARGEST_BODY)
        app.add_routes(
            [
                web.get("/healthz", self._healthz),
                web.get("/readyz", self._readyz),
                web.get("/metrics", self._metrics),
                web.get("/admin/workers", self._workers),
                web.post("/admin/workers/drain", self._drain),
                web.post("/admin/workers/undrain", self._undrain),
                web.get("/admin/config", self._config),
            ]
        )
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)

    @property
    def shown(self) -> str:
        """Its address as a URL."""
        if self._path:
            return f"unix:{self._path}"
        host, port = self._socket.getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    async def start(self) -> None:
        """Begin to answer."""
        await self._runner.setup()
        await web.SockSite(self._runner, self._socket).start()

    async def stop(self) -> None:
        """Close the port; the file of a Unix socket goes with it."""
        await self._runner.cleanup()
        self._remove_file()

    def _remove_file(self) -> None:
        if self._path:
            Path(self._path).unlink(missing_ok=True)

    async def _healthz(self, _request: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def _readyz(self, _request: web.Request) -> web.Response:
        readiness = await self._overview.readiness()
        return web.json_response(readiness, status=503 if readiness["reasons"] else 200)

    async def _metrics(self, _request: web.Request) -> web.Response:
        content_type, body = self._scrape()
        return web.Response(body=body, headers={"Content-Type": content_type})

    async def _workers(self, _request: web.Request) -> web.Response:
        return web.json_response({"workers": await self._overview.workers()})

    async def _drain(self, request: web.Request) -> web.Response:
        return await self._set_drained(request, drained=True)

    async def _undrain(self, request: web.Request) -> web.Response:
        return await self._set_drained(request, drained=False)

    async def _set_drained(self, request: web.Request, *, drained: bool) -> web.Response:
        try:
            body: Any = orjson.loads(await request.read())
        except orjson.JSONDecodeError:
            body = None
        url = body.get("worker") if isinstance(body, dict) else None
        if not isinstance(url, str):
            return problem(400, "bad_request", 'Send {"worker": URL} as JSON.')
        name = await self._overview.set_drained(url, drained=drained)
        if name is None:
            return problem(
                404, "unknown_worker", f"No worker has the URL {url[:200]!r}; GET /admin/workers lists them."
            )
        return web.json_response({"worker": name, "drained": drained})

    async def _config(self, _request: web.Request) -> web.Response:
        return web.json_response(await self._overview.configuration())
