"""What the `auth` plugin lets pass: routes, models, waits, anonymous callers, the claims of tokens."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass

import pytest
from fakes import CHAT, GOOD, PATH, RawClient, Upstream, decoded, gateway, run, until, yaml_for
from keys import AUTH, ask, bearer, becomes, create, guarded, id_of, keys, plugin_of, status
from served import QUICK, engine, serving
from tailrace.proxy.config import ConfigError
from tailrace.proxy.identity import Identity
from tailrace.proxy.limit import Limit
from tailrace.proxy.plugin import Plugin


@dataclass(frozen=True)
class Nothing:
    pass


class Queue(Plugin[Nothing]):
    """Holds calls back until its gate opens."""

    Config = Nothing
    gate: asyncio.Event
    waiting = 0

    async def on_request(self, call):
        Queue.waiting += 1
        async with call.waiting():
            await Queue.gate.wait()


def test_a_key_opens_its_routes_and_models_only(tmp_path):
    key = create(tmp_path, "--model", "m*", "--route", "chat", "--route", "embeddings")
    other = create(tmp_path, "--model", "x")

    async def body():
        async with guarded(tmp_path) as s:
            assert await status(s, key) == 200
            answer = await ask(s, bearer(key), path="/v1/completions")
            assert (answer.status, answer.json()["error"]["code"]) == (403, "permission")
            answer = await ask(s, bearer(other))
            assert (answer.status, answer.json()["error"]["code"]) == (403, "model_not_allowed")
            assert answer.json()["error"]["param"] == "model"
            answer = await ask(s, bearer(other), path="/v1/messages")
            assert answer.json()["type"] == "error"
            assert len(s.upstream.requests) == 1
            assert plugin_of(s)._refused == {"route": 1, "model": 2}

    run(body())


def test_the_identity_says_all_that_the_key_does(tmp_path):
    key = create(tmp_path, "--tag", "t1", "--tag", "t2", "--class", "batch", "--limit", "{requests: 5, per: day}")

    async def body():
        async with guarded(tmp_path) as s:
            assert await status(s, key) == 200
            [call] = s.witness.calls
            assert call.fact(Identity) == Identity(
                key=id_of(key),
                tenant="acme",
                tags=("t1", "t2"),
                classes=("batch",),
                limits=(Limit("requests", 5, "day"),),
            )

    run(body())


def test_a_key_expires(tmp_path):
    key = create(tmp_path, "--expires", "2001-01-01")
    later = create(tmp_path, "--expires", "1h")

    async def body():
        async with guarded(tmp_path) as s:
            assert "expired" in (await ask(s, bearer(key))).json()["error"]["message"]
            assert await status(s, later) == 200
            grant = next(iter(plugin_of(s)._grants._held.values()))
            grant.until = time.time() - 1
            assert await status(s, later) == 200  # what is stored counts, not what was remembered

    run(body())


def test_a_rotated_key_goes_on_for_the_overlap(tmp_path):
    key = create(tmp_path)

    async def body():
        async with guarded(tmp_path) as s:
            fresh = keys("rotate", "--state", tmp_path, id_of(key), "--overlap", "1h")
            await becomes(s, fresh, 200)
            assert await status(s, key) == 200
            third = keys("rotate", "--state", tmp_path, id_of(key), "--overlap", "0s")
            await becomes(s, third, 200)
            assert await status(s, key) == 401
            await becomes(s, fresh, 401)

    run(body())


def test_a_call_that_waits_is_refused_when_its_key_is_revoked_and_one_that_runs_is_not(tmp_path):
    Queue.gate, Queue.waiting = asyncio.Event(), 0
    gone, good = create(tmp_path), create(tmp_path)

    async def body():
        plugins = f"- {AUTH}: {{}}\n- {__name__}:Queue: {{}}\n  when: {{route: [chat]}}"
        async with Upstream(GOOD) as upstream:
            async with gateway(yaml_for(upstream, plugins=plugins, more=f"state: {tmp_path}\n")) as process:
                url = process.doors[0].shown
                waiting = [asyncio.ensure_future(post(url, each)) for each in (gone, good)]
                await until(lambda: Queue.waiting == 2)
                keys("revoke", "--state", tmp_path, id_of(gone))
                while await post(url, gone, "/v1/nothing") != 401:
                    await asyncio.sleep(0.01)
                Queue.gate.set()
                assert [await each for each in waiting] == [401, 200]

    run(body())


def digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


async def post(url: str, key: str, path: str = PATH) -> int:
    async with RawClient(url) as client:
        return (await client.post(path, CHAT, bearer(key))).status


def test_anonymous_callers_and_a_single_key(tmp_path):
    config = (
        "{anonymous: {tenant: public, models: [m], limits: [{requests: 5, per: day}]}, single_key: one-for-all-of-us}"
    )

    async def body():
        async with guarded(tmp_path, config) as s:
            assert (await ask(s)).status == 200
            assert (await ask(s, {"authorization": "Bearer wrong"})).status == 401
            assert (await ask(s, {"authorization": "Basic eA=="})).status == 401
            assert await status(s, "one-for-all-of-us") == 200
            first, second = (call.fact(Identity) for call in s.witness.calls if call.fact(Identity) is not None)
            assert (first.key, first.tenant, first.source, first.models) == ("", "public", "anonymous", ("m",))
            assert first.limits == (Limit("requests", 5, "day"),)
            assert (second.key, second.source) == ("single", "single")

    run(body())


def test_the_default_model_has_to_be_allowed_too(tmp_path):
    key, other = create(tmp_path, "--model", "m"), create(tmp_path, "--model", "x")

    async def body():
        async with guarded(tmp_path, more="default_model: m\n") as s:
            assert await status(s, key, body={"messages": []}) == 200
            assert await status(s, other, body={"messages": []}) == 403

    run(body())


WRONG = {
    "{headers: [x-team-name]}": "no header that stays here",
    "{headers: []}": "must not be empty",
    "{single_key: short}": "at least 16",
    "{keys: nowhere.yaml}": None,
    "{jwt: [{issuer: a, audience: [b], tenant: t}]}": "give one of",
    "{jwt: [{issuer: a, audience: [b], tenant: t, jwks: 'http://id.example/k'}]}": "https",
    "{jwt: [{issuer: a, audience: [b], tenant: t, jwks: 'https://a/k', algorithms: [HS256]}]}": "takes a `secret`",
    "{jwt: [{issuer: a, audience: [b], tenant: t, secret: 'sssssssssssssssssssssssssssssssss'}]}": "takes public keys",
    "{jwt: [{issuer: a, audience: [b], tenant: t, secret: short, algorithms: [HS256]}]}": "at least 32",
    "{jwt: [{issuer: a, audience: [b], jwks: 'https://id.example/k'}]}": "say whose tokens",
    "{jwt: [{issuer: a, audience: [b], tenant: t, jwks: 'https://id.example/k', algorithms: [none]}]}": "one of RS256",
}


@pytest.mark.parametrize(("config", "fault"), WRONG.items())
def test_what_a_configuration_may_not_say(config, fault):
    yaml = yaml_for("http://127.0.0.1:1", plugins=f"- {AUTH}: {config}")
    if fault is None:
        decoded(yaml)  # that is looked at where the file is used
        return
    with pytest.raises(ConfigError, match=fault):
        decoded(yaml)


def test_a_revocation_acts_on_every_process_and_a_reload_keeps_the_keys(tmp_path):
    state = tmp_path / "state"
    key = create(state)

    async def body():
        async with Upstream(engine(GOOD)) as upstream:
            yaml = yaml_for(upstream, plugins=f"- {AUTH}: {{}}", more=QUICK + f"processes: 2\nstate: {state}\n")
            async with serving(tmp_path, yaml) as it, AsyncExitStack() as stack:
                # Enough that every process has some.
                clients = [await stack.enter_async_context(RawClient(it.url)) for _ in range(8)]

                async def all_of(shown: str) -> set[int]:
                    return {(await client.post(PATH, CHAT, bearer(shown))).status for client in clients}

                assert await all_of(key) == {200}
                changed = yaml.replace(": {}", ": {single_key: one-for-all-of-us}")
                it.file.write_text(f"{changed}\nadmin: {it.admin}\n")
                await it.generation(2)
                assert await all_of(key) == await all_of("one-for-all-of-us") == {200}
                keys("revoke", "--state", state, id_of(key))
                while await all_of(key) != {401}:
                    await asyncio.sleep(0.01)
                os.kill(it.processes[0], signal.SIGKILL)
                await it.until("SIGKILL; it is replaced")
                assert await post(it.url, key) == 401

    run(body(), limit=50)
