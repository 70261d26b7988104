"""Every route of the inference API: a good request of it, a worker that answers it, and secrets no worker may see."""

from __future__ import annotations

import orjson
from fakes import answer
from tailrace.proxy.routes import INFERENCE, Shape

ROUTES = [route for route in INFERENCE if not route.pinned]
FORM = b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\nm\r\n--b--\r\n'
CANARIES = {
    "Authorization": "Bearer canary-1",
    "x-api-key": "canary-2",
    "api-key": "canary-3",
    "X-Goog-Api-Key": "canary-4",
    "Cookie": "session=canary-5",
    "Proxy-Authorization": "Basic canary-6",
    "X-Forwarded-Authorization": "Bearer canary-7",
    "Ocp-Apim-Subscription-Key": "canary-8",
    "X-Auth-Token": "canary-9",
    "X-Amz-Security-Token": "canary-10",
    "X-Amzn-Oidc-Accesstoken": "canary-11",
    "X-Goog-Iap-Jwt-Assertion": "canary-12",
    "X-Client-Secret": "canary-13",
    "APIKEY": "canary-14",
}


def worker_of_any_route(conn, request):
    route = next(route for route in ROUTES if route.path == request.target.partition("?")[0])
    return conn.send(answer(200, b"{%b: []}" % route.expects))


async def ask(client, route, headers):
    """A good request of a route."""
    body = orjson.dumps({"model": "m"})
    headers = dict(headers)
    if route.shape is Shape.MULTIPART:
        body = FORM
        headers["content-type"] = "multipart/form-data; boundary=b"
    await client.request("POST", route.path, body, headers)
    return await client.read_answer()
