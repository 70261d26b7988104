"""An issuer of tokens with a scripted server of its public keys."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import jwt
import orjson
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

NAME = "https://id.example"
AUDIENCE = "tailrace"
RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
RSA_2 = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC = ec.generate_private_key(ec.SECP256R1())
ED = ed25519.Ed25519PrivateKey.generate()


def jwk(key: Any, kid: str, **more: str) -> dict[str, Any]:
    """The public half of a key as a set has it."""
    kinds = {rsa.RSAPrivateKey: "RS256", ec.EllipticCurvePrivateKey: "ES256", ed25519.Ed25519PrivateKey: "EdDSA"}
    algorithm = next(name for kind, name in kinds.items() if isinstance(key, kind))
    plain = orjson.loads(jwt.get_algorithm_by_name(algorithm).to_jwk(key.public_key()))
    return {**plain, "kid": kid, "use": "sig", **more}


SET = {"keys": [jwk(RSA, "r1"), jwk(EC, "e1"), jwk(ED, "d1")]}


def token(key: Any = RSA, kid: str | None = "r1", algorithm: str = "RS256", /, **claims: Any) -> str:
    """A token that is good but for what the claims say."""
    plain = {"iss": NAME, "aud": AUDIENCE, "sub": "alice", "exp": int(time.time()) + 600, **claims}
    plain = {name: value for name, value in plain.items() if value is not None}
    return jwt.encode(plain, key, algorithm, headers={} if kid is None else {"kid": kid})


def raw(header: Any, claims: Any, signature: bytes = b"x") -> str:
    """A token of any parts, unsigned."""
    parts = [part if isinstance(part, bytes) else orjson.dumps(part) for part in (header, claims)]
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in (*parts, signature))


class KeyServer:
    """Answers with `body` and `status` after `gate` is open; counts."""

    def __init__(self) -> None:
        self.status = 200
        self.body: bytes = orjson.dumps(SET)
        self.fetches = 0
        self.at_once = self.most_at_once = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.url = ""

    async def answer(self, _request: web.Request) -> web.Response:
        self.fetches += 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await self.gate.wait()
        finally:
            self.at_once -= 1
        return web.Response(status=self.status, body=self.body)

    def issuer(self, **more: Any) -> dict[str, Any]:
        """Its entry in the YAML."""
        return {"issuer": NAME, "audience": [AUDIENCE], "jwks": self.url, "tenant": "acme", **more}


@asynccontextmanager
async def key_server() -> AsyncIterator[KeyServer]:
    server = KeyServer()
    app = web.Application()
    app.router.add_get("/jwks", server.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}/jwks"
    try:
        yield server
    finally:
        server.gate.set()
        await runner.cleanup()
