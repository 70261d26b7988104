"""Authentication: tokens that are built to hurt whoever reads them."""

from __future__ import annotations

import base64

import orjson
import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding
from fakes import run
from issuer import AUDIENCE, NAME, RSA, key_server, raw, token
from keys import becomes, guarded, plugin_of, status
from tailrace.plugins.auth.structure import Malformed, parts_of

GOOD_CLAIMS = {"iss": NAME, "aud": AUDIENCE, "sub": "a", "exp": 2**40}
HOSTILE = {
    "nested header": raw(b'{"alg":"RS256","x":' + b"[" * 10_000 + b"]" * 10_000 + b"}", GOOD_CLAIMS),
    "nested payload": raw({"alg": "RS256"}, b'{"x":' + b"[" * 2_000 + b"]" * 2_000 + b"}"),
    "nested a little": raw({"alg": "RS256"}, b'{"x":' + b"[" * 40 + b"]" * 40 + b"}"),
    "many brackets": raw({"alg": "RS256"}, b'{"x":[' + b",".join([b"[]"] * 1000) + b"]}"),
    "dots": "." * 8_000,
    "too long": raw({"alg": "RS256"}, {**GOOD_CLAIMS, "x": "a" * 9_000}),
    "five segments": "eyJhbGciOiJSU0EifQ.a.b.c.d",
    "bad base64": "eyJ!.eyJ9.x",
    "base64 of another length": "eyJhbGciOiJSUzI1NiJ9.e.x",
    "payload is a list": raw({"alg": "RS256"}, b"[1]"),
    "payload is text": raw({"alg": "RS256"}, b'"a"'),
    "payload is no JSON": raw({"alg": "RS256"}, b"\xff\xfe"),
    "header is null": raw(b"null", GOOD_CLAIMS),
    "duplicate exp": raw({"alg": "RS256"}, b'{"iss":"https://id.example","exp":1,"exp":99999999999}'),
    "duplicate alg": raw(b'{"alg":"RS256","alg":"none"}', GOOD_CLAIMS),
    "NaN": raw({"alg": "RS256"}, b'{"exp":NaN}'),
    "endless number": raw({"alg": "RS256"}, b'{"exp":' + b"9" * 5_000 + b"}"),
    "crit": raw({"alg": "RS256", "crit": ["b64"], "b64": False}, GOOD_CLAIMS),
    "empty segments": "..",
    "two segments": "eyJ9.eyJ9",
}


@pytest.mark.parametrize("shown", HOSTILE.values(), ids=HOSTILE)
def test_AUT_15_hostile_token_structure_is_refused_before_any_library_sees_it(shown):
    with pytest.raises(Malformed):
        parts_of(shown.encode())


def test_AUT_15_hostile_tokens_are_401(tmp_path):
    async def body():
        async with key_server() as server, guarded(tmp_path, orjson.dumps({"jwt": [server.issuer()]}).decode()) as s:
            await becomes(s, token(), 200)
            claims = [{"exp": "soon"}, {"exp": 1e400}, {"exp": -1}, {"nbf": "x"}, {"aud": {"a": 1}}, {"sub": 5}]
            claims += [{"iss": ["https://id.example"]}, {"sub": ""}, {"sub": "a" * 300}, {"exp": None}, {"aud": None}]
            shown = [*HOSTILE.values(), *(signed(each) for each in claims)]
            for each in shown:
                assert await status(s, each) == 401, each[:200]
            assert plugin_of(s)._refused["token"] + plugin_of(s)._refused.get("unknown", 0) == len(shown)

    run(body(), limit=60)


def signed(claims: dict) -> str:
    """Genuine, and odd: what the library would not sign is signed by hand."""
    plain = {**GOOD_CLAIMS, **claims}
    text = orjson.dumps({name: value for name, value in plain.items() if value is not None and value != 1e400})
    if claims.get("exp") == 1e400:
        text = text[:-1] + b',"exp":1e400}'
    data = raw({"alg": "RS256", "kid": "r1"}, text).rpartition(".")[0]
    signature = RSA.sign(data.encode(), padding.PKCS1v15(), hashes.SHA256())
    return f"{data}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"
