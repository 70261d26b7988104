"""OBS: no secret in anything that comes out, whatever goes wrong."""

from __future__ import annotations

import asyncio
import hashlib
import os
from pathlib import Path
from typing import Any

import pytest
from collector import collector
from fakes import CHAT, GOOD, PATH, RawClient, Upstream, json_answer, run, sse_head
from served import QUICK, Served, engine, serving
from tailrace.proxy import logs

NAMES = (
    "bearer", "api_key", "cookie", "proxy", "query", "custom", "upstream", "hop", "redis", "jwks", "collector",
    "header", "prompt",
)  # fmt: skip


def canary(name: str) -> str:
    """Its beginning is as much of it as its end: 8 letters of it would be found."""
    return f"{hashlib.sha256(name.encode()).hexdigest()[:12]}canary{name}"


CANARIES = {name: canary(name) for name in NAMES}


def leaks(text: str) -> list[str]:
    """Whose canary is in a text, whole, by its first eight letters or as a hash."""
    found = []
    for name, secret in CANARIES.items():
        hashes = [getattr(hashlib, how)(secret.encode()).hexdigest() for how in ("sha256", "sha1", "md5")]
        if any(mark in text for mark in (secret, secret[:8], *(each[:16] for each in hashes))):
            found.append(name)
    return found


def yaml(upstream: Upstream, to: str, state: Path) -> str:
    c = CANARIES
    return f"""
listen: [127.0.0.1:0]
state: {state}
hop_key: {c["hop"]}
pools:
  p: {{workers: ['{upstream.url}'], api_key: {c["upstream"]}}}
  gone: {{workers: ['http://127.0.0.1:1'], api_key: {c["upstream"]}}}
models: {{m: {{pool: p}}, gone: {{pool: gone}}}}
plugins:
  - trace: {{endpoint: '{to}', headers: {{x-key: {c["collector"]}}}, ratio: 1, timeout: 200ms}}
  - access_log: {{file: '{state / "access.log"}'}}
  - auth:
      anonymous: {{limits: [{{requests: 1000000, per: hour}}]}}
      jwt:
        - {{issuer: 'https://id.example', audience: [a], tenant: t, jwks: 'https://u:{c["jwks"]}@127.0.0.1:1/jwks'}}
    when: {{route: [embeddings]}}
  - quota: {{store: {{url: 'redis://:{c["redis"]}@127.0.0.1:1'}}, limits: [{{requests: 1000000, per: hour}}]}}
    when: {{route: [completions]}}
  - retry: {{back_off: 1ms}}
{QUICK}"""


def headers() -> dict[str, str]:
    c = CANARIES
    return {
        "authorization": f"Bearer {c['bearer']}",
        "x-api-key": c["api_key"],
        "api-key": c["api_key"],
        "cookie": f"session={c['cookie']}",
        "proxy-authorization": f"Basic {c['proxy']}",
        "x-team-secret": c["custom"],
        "x-auth-token": c["custom"],
        "x-anything": c["header"],
        "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "tracestate": f"v={c['header']}",
    }


async def raw(url: str, data: bytes) -> bytes:
    async with RawClient(url) as client:
        await client.send(data)
        try:
            async with asyncio.timeout(2):
                return await client.read_until_close()
        except (TimeoutError, ConnectionError):
            return b""


def lines_of(given: dict[str, str]) -> bytes:
    return b"".join(b"%b: %b\r\n" % (name.encode(), value.encode()) for name, value in given.items())


async def every_error(it: Served) -> str:
    """What clients are told on each of the ways in which something can go wrong."""
    given, query = headers(), CANARIES["query"]
    mine = {**CHAT, "messages": [{"role": "user", "content": CANARIES["prompt"]}]}
    told = []
    paths = [
        f"{PATH}?api_key={query}&key={query}",
        f"/v1/embeddings?token={query}",
        f"/v1/completions?key={query}",
        "/x",
    ]
    bodies: list[Any] = [mine, {**mine, "stream": True}, {**mine, "model": "gone"}, {**mine, "model": "none"}, b"{", []]
    for path in paths:
        for body in bodies:
            async with RawClient(it.url) as client:
                answer = await client.post(path, body, given)
                told.append(answer.head.raw + answer.body)
    lines = lines_of(given)
    secret = CANARIES["bearer"].encode()
    for data in (
        b"POST %b HTTP/1.1\r\nhost: g\r\n%bcontent-length: x\r\n\r\n" % (PATH.encode(), lines),
        b"POST %b HTTP/1.1\r\n%bhost g\r\n\r\n" % (PATH.encode(), lines),
        b"POST /%b HTTP/9.9\r\n%b\r\n" % (CANARIES["query"].encode(), lines),
        b"GET /v1/../%b HTTP/1.1\r\nhost: g\r\n%b\r\n" % (CANARIES["query"].encode(), lines),
        b"POST %b HTTP/1.1\r\nhost: g\r\nauthorization: Bearer %b\r\n\r\n" % (PATH.encode(), secret * 8000),
        b"POST %b HTTP/1.1\r\nhost: g\r\nauthorization: Bearer %b\x00\r\n\r\n" % (PATH.encode(), secret),
        b"POST %b HTTP/1.1\r\nhost: g\r\n%b\r\n" % (PATH.encode(), b"authorization: Bearer " + secret + b"\r\n" * 2),
        b"\x16\x03\x01%b" % secret,
    ):
        told.append(await raw(it.url, data))
        told.append(await raw(it.admin, data))
    return b"\n".join(told).decode("latin-1")


def test_OBS_05_secrets_in_logs_and_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker fails in every way, and repeats what it was sent while it does."""
    monkeypatch.setenv(logs.VARIABLE, "debug")
    ways = iter(range(10**6))

    async def worker(conn: Any, request: Any) -> None:
        key = (request.header("authorization") or "").encode()
        match next(ways) % 6:
            case 0:
                await conn.send(json_answer({"error": {"message": key.decode(), "code": 401}}, status=401))
            case 1:
                await conn.send(b"HTTP/1.1 2000 " + key + b"\r\n\r\n")
            case 2:
                await conn.send(sse_head(b"x-key: " + key + b"\r\n") + b"5\r\nwrong")
                conn.fin()
            case 3:
                conn.rst()
            case 4:
                await conn.send(json_answer({"error": "no"}, status=503))
            case _:
                await conn.send(GOOD)

    async def body() -> None:
        state = tmp_path / "state"
        state.mkdir()
        async with collector() as to, Upstream(engine(worker)) as upstream:
            async with serving(tmp_path, yaml(upstream, to.url, state)) as it:
                told = await every_error(it)
                seen = str(upstream.requests[-1].head)
                assert CANARIES["upstream"] in seen  # the test itself works
                metrics = (await it.get("/metrics")).body.decode()
                opened = await it.get("/metrics", {"accept": "application/openmetrics-text"})
                traces = (await it.get("/admin/traces?of=latest&limit=100")).json()["calls"]
                whole = [(await it.get(f"/admin/traces/{call['request_id']}")).body.decode() for call in traces]
                config = (await it.get("/admin/config")).body.decode()
                await to.roots(10)
                it.process.terminate()
                await it.end()
            spans = repr(to.spans) + repr(to.resources)
            access = (state / "access.log").read_text()
            assert len(access.splitlines()) > 20
            places = {
                "answers": told,
                "log": "\n".join([*it.log, *it.out]),
                "access log": access,
                "metrics": metrics,
                "exemplars": opened.body.decode(),
                "traces": "\n".join(whole),
                "configuration": config,
                "spans": spans,
            }
            assert {place: found for place, text in places.items() if (found := leaks(text))} == {}
            assert not [name for name in os.listdir(tmp_path) if name.startswith("core")]

    run(body(), limit=58)
