"""Who may use the admin port, and the one shape of everything that goes wrong there."""

from __future__ import annotations

import hmac
import logging

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware
from tailrace.proxy.config import Secret

log = logging.getLogger("tailrace")

OPEN = frozenset({"/healthz", "/readyz"})
"""Probes carry no credentials, and learn nothing here."""


def problem(status: int, code: str, message: str) -> web.Response:
    """An error as this port tells it."""
    return web.json_response({"error": {"code": code, "message": message}}, status=status)


@web.middleware
async def json_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn every refusal and failure into JSON."""
    try:
        return await handler(request)
    except web.HTTPException as refusal:
        message = f"{request.method} {request.path[:128]}"
        if refusal.status == 404:
            message = f"There is no {message} on the admin port; there are: {', '.join(_paths(request.app))}."
        elif refusal.status == 413:
            message = f"The body is larger than {request.client_max_size >> 10} KiB."
        answer = problem(refusal.status, refusal.reason.lower().replace(" ", "_"), message)
        if "Allow" in refusal.headers:
            answer.headers["Allow"] = refusal.headers["Allow"]
        return answer
    except Exception:
        log.exception("the admin port failed at %s %s", request.method, request.path)
        return problem(500, "internal_error", "The request failed; the log has the details.")


def _paths(app: web.Application) -> list[str]:
    """Every path that answers, with its methods."""
    methods: dict[str, list[str]] = {}
    for route in app.router.routes():
        if route.resource is not None and route.method != "HEAD":
            methods.setdefault(route.resource.canonical, []).append(route.method)
    return [f"{'/'.join(names)} {path}" for path, names in methods.items()]


def token_needed(token: Secret | None) -> Middleware:
    """Refuse whoever does not show the token; without one everybody who can connect is let in."""
    expected = f"Bearer {token.reveal()}".encode() if token is not None else None

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        if expected is not None and request.path not in OPEN:
            shown = request.headers.get("Authorization", "").encode("utf-8", "surrogateescape")
            if not hmac.compare_digest(shown, expected):
                answer = problem(401, "unauthorized", "Send the admin token as `Authorization: Bearer TOKEN`.")
                answer.headers["WWW-Authenticate"] = "Bearer"
                return answer
        return await handler(request)

    return guard
