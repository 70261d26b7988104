"""Tokens: what their claims say, when they are good, where the keys of their issuers come from."""

from __future__ import annotations

import hashlib
import time
from dataclasses import replace

import orjson
import pytest
from fakes import run
from issuer import AUDIENCE, NAME, RSA, RSA_2, jwk, token
from keys import ask, bearer, becomes, guarded, plugin_of, status
from tailrace.proxy.identity import Identity
from tailrace.proxy.limit import Limit

SECRET = "an-hmac-secret-of-more-than-thirty-two-bytes"


def jwt_config(**more) -> str:
    entry = {
        "issuer": NAME,
        "audience": [AUDIENCE],
        "secret": SECRET,
        "algorithms": ["HS256"],
        "tenant": "acme",
        **more,
    }
    return orjson.dumps({"jwt": [entry]}).decode()


def test_claims_say_who_calls_and_what_is_allowed(tmp_path):
    config = jwt_config(
        claims={"tenant": "org.name", "tags": "groups", "class": "tier", "limits": "https://x.example/limits"},
        scopes={
            "infer": {"models": ["m"], "routes": ["chat"], "tags": ["infers"]},
            "embed": {"routes": ["embeddings"]},
        },
    )

    async def body():
        async with guarded(tmp_path, config) as s:
            rest = {"groups": ["a"], "tier": "batch", "https://x.example/limits": [{"tokens": 9, "per": "day"}]}
            shown = token(SECRET, None, "HS256", scope="x infer", org={"name": "umbrella"}, **rest)
            assert await status(s, shown) == 200
            identity = s.witness.calls[0].fact(Identity)
            assert (identity.key, identity.tenant, identity.source) == (f"{NAME}#alice", "umbrella", "jwt")
            assert (identity.tags, identity.classes) == (("a", "infers"), ("batch",))
            assert (identity.models, identity.routes) == (("m",), ("chat",))
            assert identity.limits == (Limit("tokens", 9, "day"),)
            assert await status(s, token(SECRET, None, "HS256", scope=["embed"])) == 403
            answer = await ask(s, bearer(token(SECRET, None, "HS256", scope="nothing of ours")))
            assert (answer.status, answer.json()["error"]["code"]) == (403, "permission")
            assert await status(s, token(SECRET, None, "HS256")) == 403
            for odd in ({"org": {"name": 5}}, {"https://x.example/limits": "all"}, {"groups": [1]}):
                assert await status(s, token(SECRET, None, "HS256", scope="infer", **odd)) == 401

    run(body())


def test_times_audience_and_required_claims_of_tokens(tmp_path):
    now = int(time.time())

    async def body():
        async with guarded(tmp_path, jwt_config(leeway=5, require=["email"])) as s:

            async def asked(**claims) -> int:
                return await status(s, token(SECRET, None, "HS256", **{"email": "a", **claims}))

            assert await asked() == await asked(exp=now - 2) == await asked(nbf=now + 2) == 200
            assert await asked(aud=["other", AUDIENCE]) == 200
            for wrong in ({"exp": now - 60}, {"nbf": now + 60}, {"aud": "other"}, {"iss": "other"}, {"email": None}):
                assert await asked(**wrong) == 401, wrong
            short = token(SECRET, None, "HS256", email="a", exp=now - 3)
            assert await status(s, short) == 200
            plugin_of(s)._grants.get(hashlib.sha256(short.encode()).digest()).until = now - 1
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("tailrace.plugins.auth.tokens.jwt.decode", lambda *a, **k: {"exp": now - 60, "sub": "a"})
                assert await status(s, short) == 200  # verified again once it was past its time

    run(body())


def test_key_sets_from_a_file_and_issuers_that_come_and_go(tmp_path):
    file = tmp_path / "jwks.json"
    file.write_bytes(orjson.dumps({"keys": [jwk(RSA, "r1")]}))
    entry = {"issuer": NAME, "audience": [AUDIENCE], "jwks_file": str(file), "tenant": "acme"}

    async def body():
        async with guarded(tmp_path / "state", orjson.dumps({"jwt": [entry]}).decode()) as s:
            await becomes(s, token(), 200)
            file.write_bytes(orjson.dumps({"keys": [jwk(RSA_2, "r2")]}))
            await becomes(s, token(RSA_2, "r2"), 200)
            assert await status(s, token(jti="of a key that is gone")) in (401, 503)
            keeper = s.process._host._parts["auth"][1]
            issuer = plugin_of(s).config.jwt[0]
            kept = keeper._sets._sets[NAME]
            other = replace(issuer, issuer="https://other.example")
            await keeper._sets.follow([issuer, other])
            assert keeper._sets._sets[NAME] is kept
            await keeper._sets.follow([other])
            assert list(keeper._sets._sets) == ["https://other.example"]
            assert kept.task.cancelled()
            assert keeper._sets.missing(2**40) == ["https://other.example"]

    run(body())
