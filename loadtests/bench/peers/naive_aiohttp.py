"""The reverse proxy a Python developer would write first: aiohttp both ways, under uvloop.

python naive_aiohttp.py [port]
"""

import json
import sys

import aiohttp
import uvloop
from aiohttp import web

WORKERS = {"mock": "http://127.0.0.1:19000"}
HOP = {"host", "connection", "keep-alive", "transfer-encoding", "content-length", "te", "trailer", "upgrade"}
SESSION = web.AppKey("session", aiohttp.ClientSession)


def end_to_end(headers):
    return [(k, v) for k, v in headers.items() if k.lower() not in HOP]


async def completions(request):
    body = await request.read()
    try:
        url = WORKERS[json.loads(body)["model"]]
    except (ValueError, KeyError, TypeError):
        return web.json_response({"error": {"message": "no such model"}}, status=404)
    session = request.app[SESSION]
    async with session.post(url + request.path, data=body, headers=end_to_end(request.headers)) as upstream:
        response = web.StreamResponse(status=upstream.status, headers=end_to_end(upstream.headers))
        if upstream.content_length is not None:
            response.content_length = upstream.content_length
        await response.prepare(request)
        async for chunk in upstream.content.iter_any():
            await response.write(chunk)
        await response.write_eof()
        return response


async def health(request):
    return web.Response(text="ok")


async def session_ctx(app):
    app[SESSION] = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=None), auto_decompress=False
    )
    yield
    await app[SESSION].close()


async def make_app():
    app = web.Application(client_max_size=64 << 20)
    app.cleanup_ctx.append(session_ctx)
    app.router.add_post("/v1/chat/completions", completions)
    app.router.add_post("/v1/completions", completions)
    app.router.add_get("/health", health)
    return app


if __name__ == "__main__":
    uvloop.install()
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 19012
    web.run_app(make_app(), host="127.0.0.1", port=port, access_log=None, print=None)
