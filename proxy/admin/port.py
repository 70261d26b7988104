"""The admin port as an aiohttp application on one socket of the supervisor."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import orjson
from aiohttp import web
from tailrace.proxy.admin.guard import json_errors, problem, token_needed
from tailrace.proxy.admin.negotiation import wants_open_metrics
from tailrace.proxy.admin.overview import Overview
from tailrace.proxy.admin.terse import TerseRunner
from tailrace.proxy.config import Secret
from tailrace.proxy.control import Refused
from tailrace.proxy.metrics.exemplars import Exemplar, Place
from tailrace.proxy.trace.told import MOST, ORDERS
from tailrace.proxy.trace.waterfall import unheard

log = logging.getLogger("tailrace")
LARGEST_BODY = 64 << 10
LONGEST_NUMBER = 10
LONGEST_LIMIT = 7 * 24 * 3600


class AdminPort:
    """Answers on `sock` from `start` to `stop`."""

    def __init__(
        self,
        overview: Overview,
        sock: socket.socket,
        token: Secret | None,
        scrape: Callable[[Mapping[Place, Exemplar] | None], tuple[str, bytes]],
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
                web.post("/admin/plugins/{name}/{question}", self._plugin),
                web.get("/admin/traces", self._calls),
                web.get("/admin/traces/{id}", self._call),
            ]
        )
        self._runner = TerseRunner(app, shutdown_timeout=1.0)

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

    async def _metrics(self, request: web.Request) -> web.Response:
        wanted = wants_open_metrics(request.headers.get("Accept", ""))
        content_type, body = self._scrape(await self._overview.exemplars() if wanted else None)
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
        url, limit = (body.get("worker"), body.get("limit")) if isinstance(body, dict) else (None, None)
        if not isinstance(url, str):
            return problem(400, "bad_request", 'Send {"worker": URL} as JSON.')
        if unknown := body.keys() - {"worker", "limit"}:
            return problem(400, "bad_request", f"There is no {min(unknown)[:64]!r} here: send `worker`, and `limit`.")
        if limit is not None and not _is_limit(limit):
            return problem(400, "bad_request", f"`limit` is a number of seconds from 0 to {LONGEST_LIMIT}.")
        name = await self._overview.set_drained(url, drained=drained, limit=limit)
        if name is None:
            return problem(
                404, "unknown_worker", f"No worker has the URL {url[:200]!r}; GET /admin/workers lists them."
            )
        return web.json_response({"worker": name, "drained": drained})

    async def _plugin(self, request: web.Request) -> web.Response:
        """Ask the plugins of a name, in every process; each says what it can be asked."""
        name, question = request.match_info["name"], request.match_info["question"]
        try:
            fields: Any = orjson.loads(await request.read() or b"{}")
        except orjson.JSONDecodeError:
            fields = None
        if not isinstance(fields, dict):
            return problem(400, "bad_request", "Send an object as JSON, or nothing.")
        try:
            answers = await self._overview.plugin(name, question, fields)
        except Refused as refusal:
            return problem(400, "bad_request", f"{refusal}"[:300])
        if not answers:
            return problem(404, "unknown_plugin", f"No plugin {name[:64]!r} here answers questions.")
        return web.json_response({"processes": answers})

    async def _config(self, _request: web.Request) -> web.Response:
        return web.json_response(await self._overview.configuration())

    async def _call(self, request: web.Request) -> web.Response:
        name = request.match_info["id"]
        found = await self._overview.call(name)
        if not found["calls"]:
            return problem(
                404,
                "unknown_call",
                f"Nothing is remembered of {name[:64]!r}: it is not over yet, too long ago, or nobody's id here; "
                "`traces` in the configuration says how much is remembered." + unheard(found["silent"]),
            )
        return web.json_response(found)

    async def _calls(self, request: web.Request) -> web.Response:
        of, limit = request.query.get("of", "latest"), request.query.get("limit", "10")
        if of not in ORDERS:
            return problem(400, "bad_request", f"`of` is one of {', '.join(ORDERS)}.")
        if not (limit.isdecimal() and len(limit) < LONGEST_NUMBER and 0 < int(limit) <= MOST):
            return problem(400, "bad_request", f"`limit` is a number from 1 to {MOST}.")
        return web.json_response(await self._overview.calls(of, int(limit)))


def _is_limit(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= LONGEST_LIMIT
