"""Authentication: how keys are shown, looked up, made and taken away."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import os

import orjson
import pytest
from fakes import GOOD, PATH, RawClient, chat_chunk, chunked, event, run, sse_head, until
from keys import ask, bearer, becomes, create, guarded, id_of, keys, plugin_of, status

from cases.scene import STREAM

SPELLINGS = {
    "bearer K": 200,
    "bEARER K": 200,
    "Bearer  K": 200,
    "Bearer K \t": 200,
    " Bearer K": 200,
    "Bearer": 401,
    "Bearer ,": 401,
    "Bearer k": 401,
    "Bearer K K": 401,
    "Bearer\tK": 401,
    "K": 401,
    "Basic Szo=": 401,
    "Bearer K,": 401,
}


@pytest.mark.parametrize(("written", "wanted"), SPELLINGS.items())
def test_AUT_01_scheme_case_and_spacing(tmp_path, written, wanted):
    key = create(tmp_path)

    async def body():
        async with guarded(tmp_path) as s:
            answer = await ask(s, {"authorization": written.replace(" k", " " + key.lower()).replace("K", key)})
            assert answer.status == wanted
            assert len(s.upstream.requests) == (wanted == 200)
            assert key.encode() not in answer.body

    run(body())


def test_AUT_01_two_authorization_headers(tmp_path):
    key = create(tmp_path)

    async def body():
        async with guarded(tmp_path) as s:
            for second in (key, "other"):
                async with RawClient(s.url) as client:
                    lines = f"authorization: Bearer {key}\r\nAuthorization: Bearer {second}\r\n"
                    await client.send(f"POST {PATH} HTTP/1.1\r\nhost: a\r\n{lines}content-length: 0\r\n\r\n".encode())
                    assert (await client.read_answer()).status == 400
            assert not s.upstream.requests

    run(body())


def test_AUT_02_several_credential_headers(tmp_path):
    key, other = create(tmp_path), create(tmp_path, tenant="other")

    async def body():
        async with guarded(tmp_path) as s:
            assert (await ask(s, {"x-api-key": f" {key}"})).status == 200
            assert (await ask(s, {**bearer(key), "x-api-key": key})).status == 200
            for headers in ({**bearer(key), "x-api-key": other}, {**bearer("wrong"), "x-api-key": other}):
                answer = await ask(s, headers)
                assert answer.status == 400
                assert answer.json()["error"]["code"] == "conflicting_credentials"
            assert plugin_of(s)._refused == {"ambiguous": 2}
        async with guarded(tmp_path, "{headers: [X-Team-Api-Key]}") as s:
            assert (await ask(s, {"x-team-api-key": key, **bearer("of a front")})).status == 200
            assert (await ask(s, bearer(key))).status == 401
            assert b"x-team-api-key" not in s.upstream.requests[0].head.lower()

    run(body())


def test_AUT_04_keys_are_looked_up_by_digest_and_compared_in_constant_time(tmp_path, monkeypatch):
    key = create(tmp_path)
    digest = hashlib.sha256(key.encode()).digest()
    seen = []

    really = hmac.compare_digest

    def compare(one, two):
        seen.append((bytes(one), bytes(two)))
        return really(one, two)

    monkeypatch.setattr(hmac, "compare_digest", compare)

    async def body():
        async with guarded(tmp_path, "{single_key: only-one-key-for-all}") as s:
            for shown in (key, key, "only-one-key-for-all"):
                seen.clear()
                assert await status(s, shown) == 200
                mine = hashlib.sha256(shown.encode()).digest()
                assert (mine, mine) in seen
                assert all(len(one) == len(two) == len(digest) for one, two in seen)

    run(body())


def test_AUT_06_a_key_that_was_refused_works_once_it_exists(tmp_path):
    first = create(tmp_path)

    async def body():
        async with guarded(tmp_path) as s:
            later = "a-key-of-another-gateway"
            assert await status(s, later) == 401
            digest = hashlib.sha256(later.encode()).hexdigest()
            keys("create", "--state", tmp_path, "--tenant", "acme", "--id", "later", "--digest", digest)
            await becomes(s, later, 200, limit=2.0)
            assert await status(s, first) == 200

    run(body())


def test_AUT_06_random_keys_are_neither_remembered_nor_looked_for_in_the_store(tmp_path):
    key = create(tmp_path)

    async def body():
        async with guarded(tmp_path) as s:
            assert await status(s, key) == 200
            plugin = plugin_of(s)
            remembered = len(plugin._grants)
            for _ in range(20_000):
                shown = os.urandom(16)
                with pytest.raises(Exception, match="not valid"):
                    plugin._found(shown, hashlib.sha256(shown).digest())
            assert len(plugin._grants) == remembered
            assert dict(plugin._refused) == {"unknown": 20_000}

    run(body())


@pytest.mark.interpreted
def test_AUT_06_what_is_remembered_of_good_keys_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr("tailrace.plugins.auth.grant.REMEMBERED", 3)
    made = [create(tmp_path) for _ in range(6)]

    async def body():
        async with guarded(tmp_path) as s:
            for key in made + made:
                assert await status(s, key) == 200
            assert len(plugin_of(s)._grants) == 3

    run(body())


def test_a_revocation_acts_at_once_and_running_streams_finish(tmp_path):
    key, going_on = create(tmp_path), asyncio.Event()

    async def engine(conn, request):
        await conn.send(sse_head() + chunked(chat_chunk("a")))
        await going_on.wait()
        await conn.send(chunked(chat_chunk(finish="stop")) + chunked(event("[DONE]")) + chunked(b""))

    async def body():
        async with guarded(tmp_path, "{}", engine, GOOD) as s:
            stream = await s.client()
            await stream.request("POST", PATH, orjson.dumps(STREAM), bearer(key))
            await until(lambda: s.upstream.requests)
            keys("disable", "--state", tmp_path, id_of(key))
            await becomes(s, key, 401, limit=2.0)
            assert "disabled" in (await ask(s, bearer(key))).json()["error"]["message"]
            keys("enable", "--state", tmp_path, id_of(key))
            await becomes(s, key, 200, limit=2.0)
            keys("revoke", "--state", tmp_path, id_of(key))
            await becomes(s, key, 401, limit=2.0)
            going_on.set()
            answer = await stream.read_answer()
            assert answer.complete
            assert b"[DONE]" in answer.body

    run(body())
