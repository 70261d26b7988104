"""What tests of the engine share."""

import os

import orjson
from aiohttp import web


def alive(pid: int) -> bool:
    """Does the process exist; a zombie does."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


class Clock:
    """A clock that stands until told to move."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class HttpEngine:
    """An engine's HTTP side in this process: `async with HttpEngine() as engine`, then `engine.url`.

    `routes` maps "METHOD /path" to a handler or to (status, body); `asked` lists what came.
    """

    def __init__(self, **routes) -> None:
        self.routes = {"GET /health": (200, b""), **routes}
        self.asked = []

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        self.asked.append(
            (
                f"{request.method} {request.path}",
                request.query_string,
                {k.lower(): v for k, v in request.headers.items()},
                body,
            )
        )
        route = self.routes.get(f"{request.method} {request.path}", (404, b'{"detail":"Not Found"}'))
        if callable(route):
            return await route(request)
        status, answer = route
        return web.Response(status=status, body=answer if isinstance(answer, bytes) else orjson.dumps(answer))

    def paths(self) -> list[str]:
        return [asked[0] for asked in self.asked]

    async def __aenter__(self) -> "HttpEngine":
        app = web.Application()
        app.router.add_route("*", "/{tail:.*}", self._answer)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_) -> None:
        await self._runner.cleanup()


def stream(*payloads: bytes):
    """A handler that streams events."""

    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        for payload in payloads:
            await response.write(b"data: " + payload + b"\n\n")
        return response

    return handler


CONTENT = b'{"choices":[{"index":0,"delta":{"content":"hi"},"finish_reason":null}]}'
ROLE = b'{"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}'
FINISH = b'{"choices":[{"index":0,"delta":{"content":""},"finish_reason":"length"}]}'
