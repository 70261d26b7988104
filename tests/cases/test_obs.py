"""OBS: what is seen from outside, and what it costs."""

import asyncio

import orjson
from fakes import GOOD, RawClient, chat_answer, json_answer, run
from tailrace.proxy.metrics import Totals, render

from cases.scene import CHAT, PATH, scene


def metrics_of(s):
    s.process.service.metrics.write()
    return render([s.process.service.metrics.segment], Totals())


def series_of(text):
    return {line.rpartition(" ")[0] for line in text.splitlines() if not line.startswith("#")}


async def flood(url, requests, connections=4):
    """Send raw requests as pipelined batches over a few connections, and read every answer."""

    async def feed(mine):
        async with RawClient(url) as client:
            for start in range(0, len(mine), 10):
                batch = mine[start : start + 10]
                await client.send(b"".join(batch))
                for _ in batch:
                    await client.read_answer()

    await asyncio.gather(*(feed(requests[at::connections]) for at in range(connections)))


def post(path, body, headers=b""):
    data = orjson.dumps(body)
    return b"POST %b HTTP/1.1\r\nhost: g\r\ncontent-type: application/json\r\n%bcontent-length: %d\r\n\r\n%b" % (
        path.encode(),
        headers,
        len(data),
        data,
    )


def test_OBS_01_labels_from_the_request():
    async def body():
        async with scene(GOOD) as s:
            await s.ask(CHAT)
            await s.ask({**CHAT, "model": "first-unknown"})
            before = series_of(metrics_of(s))
            requests = [
                post(PATH, {**CHAT, "model": f"model-{number}"}, b"x-tenant: tenant-%d\r\n" % number)
                for number in range(20_000)
            ]
            await flood(s.url, requests)
            text = metrics_of(s)
            assert series_of(text) == before
            assert "model-" not in text
            assert "tenant-" not in text
            assert 'model="unknown",outcome="refused",code="404"} 20001' in text

    run(body())


def test_OBS_01_model_names_that_the_worker_echoes():
    async def echo(conn, request):
        answer = {**chat_answer("hi"), "model": f"echoed-{len(s_requests)}"}
        s_requests.append(request)
        await conn.send(json_answer(answer))

    s_requests = []

    async def body():
        async with scene(echo) as s:
            await s.ask(CHAT)
            before = series_of(metrics_of(s))
            await flood(s.url, [post(PATH, CHAT) for _ in range(200)])
            text = metrics_of(s)
            assert series_of(text) == before
            assert "echoed-" not in text

    run(body())


def test_OBS_02_raw_paths_as_labels():
    async def body():
        async with scene(GOOD) as s:
            async with RawClient(s.url) as client:
                for path in ("/first", "/v1/files/first", "/v1/models/first"):
                    await client.get(path)
            before = series_of(metrics_of(s))
            paths = [f"/scan-{number}/.env" for number in range(10_000)]
            paths += [f"/v1/files/file-{number}" for number in range(500)]
            paths += [f"/v1/models/scan-{number}" for number in range(500)]
            await flood(s.url, [b"GET %b HTTP/1.1\r\nhost: g\r\n\r\n" % path.encode() for path in paths])
            text = metrics_of(s)
            assert series_of(text) == before
            assert "scan-" not in text
            assert "file-" not in text
            assert 'route="unmatched",model="unknown",outcome="refused",code="404"} 10001' in text

    run(body())


def test_OBS_02_odd_methods():
    async def body():
        async with scene(GOOD) as s:
            for method in (b"FOO", b"PROPFIND", b"BREW", b"M-SEARCH", b"DELETE", b"PUT", b"UNLINK"):
                for path in (b"/v1/chat/completions", b"/nowhere"):
                    async with RawClient(s.url) as client:
                        await client.send(b"%b %b HTTP/1.1\r\nhost: g\r\nconnection: close\r\n\r\n" % (method, path))
                        await client.read_until_close()
            text = metrics_of(s)
            for method in ("FOO", "PROPFIND", "BREW", "SEARCH", "DELETE", "PUT", "UNLINK"):
                assert method not in text
            requests = [line for line in text.splitlines() if line.startswith("tailrace_requests_total{")]
            assert {line.split('route="')[1].split('"')[0] for line in requests} <= {"chat", "unmatched", "unparsed"}
            assert sum(int(line.rpartition(" ")[2]) for line in requests) == 14

    run(body())


def test_OBS_02_odd_statuses_from_the_worker():
    statuses = [200, 201, 299, 418, 419, 420, 451, 498, 500, 507, 520, 598, 599]
    left = list(statuses)

    async def script(conn, request):
        await conn.send(json_answer(chat_answer("hi"), status=left.pop(0)))

    async def body():
        async with scene(script) as s:
            for _ in statuses:
                await s.ask(CHAT)
            assert not left
            codes = {name.partition('code="')[2].partition('"')[0] for name in series_of(metrics_of(s))} - {""}
            assert codes <= {"200", "2xx", "4xx", "5xx", "500", "502"}

    run(body())
