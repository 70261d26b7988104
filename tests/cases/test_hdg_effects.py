"""Requests with effects beyond their answer: never hedged, and sent again only where no worker can have seen them."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest
from fakes import CHAT, PATH, RawClient, Upstream, gateway, run

from cases.scripts import WELL, silent

PLUGINS = """[{retry: {back_off: 0}}, {hedge: {unknown: 50ms, extra: 1, unary: true, floor_ms: 1}},
  cases.policies:InOrder]"""


async def reset(conn, request):
    conn.rst()


SIDE_EFFECTS = [
    (PATH, {**CHAT, "store": True}),
    ("/v1/responses", {"model": "m", "input": "hi", "store": True}),
    ("/v1/responses", {"model": "m", "input": "hi", "background": True}),
    ("/v1/responses", {"model": "m", "input": "hi", "tools": [{"type": "mcp", "server_url": "x"}]}),
    ("/v1/files", {"purpose": "batch"}),
    ("/v1/batches", {"input_file_id": "f"}),
    ("/v1/fine_tuning/jobs", {"model": "m"}),
    ("/v1/audio/transcriptions", "upload"),
]
UPLOAD = (
    b'--x\r\ncontent-disposition: form-data; name="model"\r\n\r\nm\r\n'
    b'--x\r\ncontent-disposition: form-data; name="file"; filename="a.wav"\r\n\r\nRIFF\r\n--x--\r\n'
)


@asynccontextmanager
async def passing(first, second, plugins=PLUGINS):
    """Two workers, the first preferred, that get inference and some other paths; a function that sends, and both."""
    async with Upstream(first) as one, Upstream(second) as two:
        routes = ", ".join(
            f"{{path: {path}, pool: main}}" for path in ("/v1/files", "/v1/batches", "/v1/fine_tuning/jobs")
        )
        yaml = f"""
listen: [127.0.0.1:0]
models: {{m: {{pool: main}}}}
pools: {{main: {{workers: ['{one.url}', '{two.url}']}}}}
routes: [{routes}]
plugins: {plugins}
"""
        async with gateway(yaml) as process:

            async def send(path, body, **headers):
                async with RawClient(process.doors[0].shown) as client:
                    if body != "upload":
                        return await client.post(path, body, headers)
                    typed = {"content-type": "multipart/form-data; boundary=x"}
                    await client.request("POST", path, UPLOAD, typed)
                    return await client.read_answer()

            yield send, one, two


@pytest.mark.parametrize(("path", "body"), SIDE_EFFECTS, ids=[f"{path} {body}" for path, body in SIDE_EFFECTS])
def test_HDG_03_what_has_effects_is_neither_repeated_nor_hedged(path, body):
    async def late(conn, request):
        await asyncio.sleep(0.15)
        conn.rst()

    async def main():
        async with passing(late, WELL) as (send, one, two):
            assert (await send(path, body)).status == 502
            assert (len(one.requests), len(two.requests)) == (1, 0)

    run(main())


@pytest.mark.parametrize(("path", "body"), SIDE_EFFECTS, ids=[f"{path} {body}" for path, body in SIDE_EFFECTS])
def test_HDG_03_what_no_worker_has_seen_is_sent_elsewhere(path, body):
    async def main():
        async with passing(silent, WELL) as (send, one, two):
            one.refuse()
            await send(path, body)
            assert (len(one.requests), len(two.requests)) == (0, 1)

    run(main())


def test_HDG_03_a_client_may_forbid_repetition():
    async def body():
        async with passing(reset, WELL) as (send, one, two):
            assert (await send(PATH, CHAT, **{"x-tailrace-idempotent": "false"})).status == 502
            assert (len(one.requests), len(two.requests)) == (1, 0)
            assert (await send(PATH, CHAT)).status == 200

    run(body())
