"""Authentication: tokens that pretend, tokens that are built to hurt, and issuers that are down."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import time

import jwt
import orjson
import pytest
from cryptography.hazmat.primitives import serialization
from fakes import chat_chunk, chunked, event, run, sse_head, until
from issuer import AUDIENCE, EC, ED, NAME, RSA, RSA_2, SET, KeyServer, jwk, key_server, raw, token
from keys import ask, bearer, becomes, guarded, plugin_of, status

from cases.scene import STREAM, Scene

SECRET = "an-hmac-secret-of-more-than-sixty-four-bytes, which is what HS512 asks for"


def settings(server: KeyServer, **more) -> str:
    more.setdefault("algorithms", ["RS256", "ES256", "EdDSA"])
    return orjson.dumps({"jwt": [server.issuer(cooldown=0.3, **more)]}).decode()


def forms_of(key) -> dict[str, bytes]:
    """Every form in which the public key might be taken for a secret."""
    public = key.public_key()
    of = serialization.Encoding, serialization.PublicFormat
    pem = public.public_bytes(of[0].PEM, of[1].SubjectPublicKeyInfo)
    return {
        "pem": pem,
        "pem without its last line break": pem.strip(),
        "pem with other armour": pem.replace(b"BEGIN PUBLIC KEY", b"BEGIN  PUBLIC  KEY"),
        "pkcs1": public.public_bytes(of[0].PEM, of[1].PKCS1),
        "der": public.public_bytes(of[0].DER, of[1].SubjectPublicKeyInfo),
        "ssh": public.public_bytes(of[0].OpenSSH, of[1].OpenSSH),
        "jwk": orjson.dumps(jwk(key, "r1")),
        "empty": b"",
    }


def hmac_signed(secret: bytes, algorithm: str = "HS256", kid: str = "r1") -> str:
    """By hand: the library refuses to sign with a public key."""
    claims = {"iss": NAME, "aud": AUDIENCE, "sub": "eve", "exp": int(time.time()) + 600}
    signed = raw({"alg": algorithm, "kid": kid, "typ": "JWT"}, claims).rpartition(".")[0]
    mac = hmac.new(secret, signed.encode(), hashlib.sha256).digest()
    return f"{signed}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}"


def test_AUT_07_algorithm_confusion(tmp_path):
    async def body():
        async with key_server() as server, guarded(tmp_path, settings(server)) as s:
            await becomes(s, token(), 200)
            assert await status(s, token(EC, "e1", "ES256")) == 200
            assert await status(s, token(ED, "d1", "EdDSA")) == 200
            claims = {"iss": NAME, "aud": AUDIENCE, "sub": "eve", "exp": int(time.time()) + 600}
            pretended = {
                f"alg {name}": raw({"alg": name, "kid": "r1"}, claims) for name in ("none", "None", "nOnE", "")
            }
            pretended |= {
                f"alg {name}, signature": raw({"alg": name}, claims, b"") + "eA" for name in ("none", "HS256")
            }
            pretended |= {f"HS256 with {name}": hmac_signed(secret) for name, secret in forms_of(RSA).items()}
            pretended |= {
                "not in the list": token(RSA, "r1", "RS384"),
                "PS256 of the same key": token(RSA, "r1", "PS256"),
                "another key's kid": token(RSA, "e1"),
                "another kind's kid": token(EC, "r1", "ES256"),
                "another key": token(RSA_2, "r1"),
                "alg is no text": raw({"alg": ["RS256"], "kid": "r1"}, claims),
            }
            for name, shown in pretended.items():
                assert await status(s, shown) == 401, name
            assert plugin_of(s)._refused["token"] == len(pretended)

    run(body())


def test_AUT_07_a_key_that_names_its_algorithm_is_good_for_no_other(tmp_path):
    async def body():
        async with key_server() as server:
            server.body = orjson.dumps({"keys": [jwk(RSA, "r1", alg="RS256")]})
            async with guarded(tmp_path, settings(server, algorithms=["RS256", "PS256"])) as s:
                await becomes(s, token(), 200)
                assert await status(s, token(RSA, "r1", "PS256")) == 401

    run(body())


def test_AUT_07_an_issuer_with_a_secret_takes_nothing_else(tmp_path):
    entry = {"issuer": NAME, "audience": [AUDIENCE], "secret": SECRET, "algorithms": ["HS256"], "tenant": "acme"}

    async def body():
        async with guarded(tmp_path, orjson.dumps({"jwt": [entry]}).decode()) as s:
            assert await status(s, token(SECRET, None, "HS256")) == 200
            for shown in (token(), hmac_signed(b""), token(SECRET, None, "HS512"), token(SECRET + "x", None, "HS256")):
                assert await status(s, shown) == 401

    run(body())


def test_AUT_07_the_library_is_new_enough():
    assert tuple(map(int, jwt.__version__.split(".")[:2])) >= (2, 14)


async def lag_of(seconds: float) -> float:
    """The longest that the loop was late within a time."""
    worst, end = 0.0, time.monotonic() + seconds
    while (before := time.monotonic()) < end:
        await asyncio.sleep(0.005)
        worst = max(worst, time.monotonic() - before - 0.005)
    return worst


@pytest.mark.parametrize("answered", [200, 503])
def test_AUT_09_unknown_kid_flood(tmp_path, answered):
    async def body():
        async with key_server() as server, guarded(tmp_path, settings(server)) as s:
            await becomes(s, token(), 200)
            server.status = answered
            plugin, before, began = plugin_of(s), server.fetches, time.monotonic()
            for number in range(2_500):
                shown = raw({"alg": "RS256", "kid": f"k{number}"}, {"iss": NAME, "exp": 2**40}).encode()
                with pytest.raises(Exception, match=r"not valid|cannot be verified"):
                    plugin._found(shown, shown)
                if number % 50 == 0:
                    # New tokens each time, so that the keys themselves are asked for.
                    assert await status(s, token(jti=str(number))) == 200
                    await asyncio.sleep(0.03)
            elapsed = time.monotonic() - began
            assert server.fetches - before <= 1 + elapsed / 0.3
            assert server.most_at_once == 1
            known = plugin._tokens._known[NAME]
            assert [key.kid for key in known.keys] == ["r1", "e1", "d1"]

    run(body())


def test_AUT_09_a_new_key_is_found_by_one_fetch(tmp_path):
    async def body():
        async with key_server() as server, guarded(tmp_path, settings(server, refresh=3600)) as s:
            await becomes(s, token(), 200)
            before = server.fetches
            server.body = orjson.dumps({"keys": [*SET["keys"], jwk(RSA_2, "r2")]})
            await becomes(s, token(RSA_2, "r2"), 200)
            assert server.fetches == before + 1

    run(body())


BROKEN_SETS = {
    "503": (503, orjson.dumps(SET)),
    "HTML": (200, b"<html>login</html>"),
    "empty": (200, b'{"keys":[]}'),
    "no list": (200, b'{"keys":{}}'),
    "a secret": (200, b'{"keys":[{"kty":"oct","k":"c2VjcmV0","kid":"r1"}]}'),
    "too large": (200, b" " * 300_000),
    "deep": (200, b"[" * 100_000),
    "short key": (200, b'{"keys":[{"kty":"RSA","n":"AQAB","e":"AQAB","kid":"r1"}]}'),
}


def test_AUT_10_key_set_endpoint_down(tmp_path):
    async def body():
        async with key_server() as server, guarded(tmp_path, settings(server, max_age=60)) as s:
            await becomes(s, token(), 200)
            for name, (code, content) in BROKEN_SETS.items():
                server.status, server.body = code, content
                before = server.fetches
                while server.fetches == before:
                    assert await status(s, token(kid=name, jti=name)) == 200
                    assert (await ask(s, bearer(token(RSA_2, f"unknown {name}")))).status in (401, 503)
                    await asyncio.sleep(0.02)
            await until(lambda: not server.at_once)
            assert await status(s, token(jti="at the end")) == 200
            [(issuer, age)] = plugin_of(s)._tokens.ages()
            assert issuer == NAME
            assert age > 0
            # Past the stated age nothing is believed any more, and nobody is called a liar for it.
            plugin_of(s)._tokens._known[NAME].fetched -= 61
            answer = await ask(s, bearer(token(jti="too late")))
            assert answer.status == 503
            assert answer.json()["error"]["code"] == "auth_unavailable"
            server.status, server.body = 200, orjson.dumps(SET)
            await becomes(s, token(jti="again"), 200)

    run(body())


def test_AUT_10_one_malformed_key_does_not_void_the_others(tmp_path):
    bad = [{"kty": "RSA", "kid": "b1"}, {"kty": "RSA", "n": "!", "e": "AQAB", "kid": "b2"}, "text", None, {"kty": 5}]
    bad += [{**jwk(RSA, "b3"), "use": "enc"}, {**jwk(EC, "b4"), "x": "AAAA"}, {**jwk(RSA, "b5"), "alg": "HS256"}]

    async def body():
        async with key_server() as server:
            server.body = orjson.dumps({"keys": [*bad, *SET["keys"]]})
            async with guarded(tmp_path, settings(server)) as s:
                await becomes(s, token(), 200)
                assert [key.kid for key in plugin_of(s)._tokens._known[NAME].keys] == ["r1", "e1", "d1"]

    run(body())


def test_AUT_12_key_fetch_blocks_nobody(tmp_path):
    streaming = asyncio.Event()

    async def engine(conn, request):
        await conn.send(sse_head() + chunked(chat_chunk("a")))
        await streaming.wait()
        await conn.send(chunked(chat_chunk(finish="stop")) + chunked(event("[DONE]")) + chunked(b""))

    async def body():
        async with key_server() as server:
            server.gate.clear()
            config = orjson.loads(settings(server)) | {"single_key": "of-streams-that-run"}
            async with guarded(tmp_path, orjson.dumps(config).decode(), engine) as s:
                clients = [await begun(s) for _ in range(10)]
                await until(lambda: server.at_once == 1)
                lag = asyncio.ensure_future(lag_of(0.4))
                answers = await asyncio.gather(*(ask(s, bearer(token(jti=str(n)))) for n in range(50)))
                assert {answer.status for answer in answers} == {503}
                assert all(answer.header("retry-after") for answer in answers)
                await lag
                assert (server.fetches, server.most_at_once) == (1, 1)
                server.gate.set()
                streaming.set()
                await becomes(s, token(jti="later"), 200)
                for client in clients:
                    assert (await client.read_answer()).complete
                assert server.most_at_once == 1

    run(body())


async def begun(s: Scene):
    """A stream that runs."""
    client = await s.client()
    await client.request("POST", "/v1/chat/completions", orjson.dumps(STREAM), bearer("of-streams-that-run"))
    return client
