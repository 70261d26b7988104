"""A sidecar registers at gateways: at its start, in time again, at once where one restarted; it leaves as it goes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from fakes import Connection, Request, Upstream, gateway, json_answer, run, until
from sidecars import CHAT, HELLO, KEY, found, sidecar, simulated, url_of, worker_settings
from tailrace.proxy.config import ConfigError
from tailrace.proxy.gateway import GatewayProcess
from tailrace.proxy.hop import HopKey
from tailrace.proxy.testing.client import RawClient
from tailrace.worker import registration
from tailrace.worker.registration import RegisterSettings, Registration

ME = "http://10.0.0.9:8000"


def gateway_yaml(listen: str = "127.0.0.1:0", lease: str = "15s") -> str:
    return (
        f"listen: [{listen}]\nhop_key: {KEY}\n"
        f"models: {{tiny: {{workers: [{{registered: {{group: g, lease: {lease}}}}}]}}}}\n"
    )


def registering(*gateways: str, group: str = "g") -> str:
    listed = ", ".join(f"'{url}'" for url in gateways)
    return f"hop_key: {KEY}\nregister: {{gateways: [{listed}], group: {group}, region: eu}}\n"


def names(process: GatewayProcess) -> list[str]:
    return [worker.name for worker in process.workers()]


def test_it_serves_by_what_it_has_registered_and_is_gone_once_it_drains() -> None:
    async def body() -> None:
        async with simulated() as sim, gateway(gateway_yaml()) as one, gateway(gateway_yaml()) as two:
            async with sidecar(found(sim.url), registering(url_of(one), url_of(two))) as side:
                await until(lambda: names(one) == names(two) == [url_of(side)])
                assert {worker.region for worker in one.workers()} == {"eu"}
                async with RawClient(url_of(one)) as client:
                    # The gateway of this test does not watch its workers, so no hop key is shown to them.
                    assert (await client.post(CHAT, HELLO)).status in (200, 502)
                draining = asyncio.ensure_future(side.drain(asyncio.Event()))
                await until(lambda: names(one) == names(two) == [])
                await draining

    run(body())


def test_it_says_so_again_before_its_lease_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    async def wait(self: Registration, seconds: float) -> None:
        pauses.append(seconds)
        await asyncio.sleep(0)

    monkeypatch.setattr(Registration, "_wait", wait)

    async def body() -> None:
        async with gateway(gateway_yaml(lease="90s")) as process:
            me = registration_at(url_of(process))
            me.begin()
            await until(lambda: len(pauses) > 20)
            assert names(process) == [ME]
            me.close()

    run(body())
    assert all(24.0 <= pause <= 30.0 for pause in pauses)
    assert len(set(pauses)) > 1, "not all at once"


def test_it_waits_until_then() -> None:
    async def body() -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        await registration_at("http://127.0.0.1:1")._wait(0.05)
        assert loop.time() - began > 0.048  # loops tell whole milliseconds

    run(body())


def test_a_gateway_that_restarts_hears_of_it_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration, "LOOK", 0.01)

    async def body() -> None:
        readers = [1]
        async with gateway(gateway_yaml()) as process:
            me = registration_at(url_of(process), readers)
            me.begin()
            await until(lambda: names(process) == [ME])
            await until(lambda: me._trouble)
            port = url_of(process).rpartition(":")[2]
        readers[0] = 0
        await until(lambda: me._trouble[f"http://127.0.0.1:{port}"], limit=3.0)
        async with gateway(gateway_yaml(f"127.0.0.1:{port}")) as process:
            # Well before a third of the lease.
            await until(lambda: names(process) == [ME], limit=3.0)
            await me.leave()
            assert names(process) == []

    run(body())


def registration_at(url: str, readers: list[int] | None = None, **more: Any) -> Registration:
    settings = RegisterSettings(gateways=(url,), group="g", **more)
    return Registration(settings, HopKey(KEY), ME, lambda: (readers or [0])[0])


def test_one_that_has_left_begins_no_more() -> None:
    async def body() -> None:
        async with gateway(gateway_yaml()) as process:
            me = registration_at(url_of(process))
            await me.leave()
            me.begin()
            assert not me._tasks

    run(body())


def test_a_changed_registration_takes_effect_with_a_reload(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "tailrace")

    async def body() -> None:
        async with simulated() as sim, gateway(gateway_yaml()) as one, gateway(gateway_yaml()) as two:
            async with sidecar(found(sim.url), registering(url_of(one))) as side:
                await until(lambda: names(one))
                await side.load(worker_settings(found(sim.url), registering(url_of(one), url_of(two))))
                await until(lambda: names(two))
                # The first was told nothing in between.
                assert "has left" not in caplog.text
                assert names(one)
                await side.load(worker_settings(found(sim.url), f"hop_key: {KEY}\n"))
                await until(lambda: names(one) == names(two) == [])

    run(body())


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (json_answer({"error": {"message": "Only workers that hold the hop key"}}, 401), "Only workers that hold"),
        (json_answer({"refused": "'g' has no room for another worker"}), "no room"),
        (json_answer({"lease": 0}), "it answers 200"),
        (json_answer({"lease": True}), "it answers 200"),
        (json_answer([], 404), "is it the data port of a gateway?"),
    ],
)
def test_what_a_gateway_refuses_is_told_once(answer: bytes, why: str, caplog: pytest.LogCaptureFixture) -> None:
    async def body() -> None:
        async with Upstream(answer) as upstream:
            me = registration_at(upstream.url)
            me.begin()
            await upstream.asked(3)
            me.close()
            await until(lambda: all(task.done() for task in me._tasks))

    caplog.set_level("INFO", "tailrace")
    run(body())
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert why in caplog.text


def test_one_that_cannot_be_reached_is_tried_again_and_holds_up_no_end(caplog: pytest.LogCaptureFixture) -> None:
    async def body() -> None:
        me = registration_at("http://127.0.0.1:1")
        me.begin()
        await until(lambda: caplog.records)
        async with asyncio.timeout(5):
            await me.leave()

    run(body())
    assert "cannot register at http://127.0.0.1:1" in caplog.text


def test_what_nobody_expects_is_told_once_and_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(registration, "LATEST", 0.01)
    monkeypatch.setattr(registration, "LOOK", 0.01)

    async def body() -> None:
        async with Upstream(json_answer({"lease": 15})) as upstream:
            port = upstream.url.rpartition(":")[2]
            looks = 0

            async def look(host: str, _port: int) -> list[str]:
                nonlocal looks
                looks += 1
                if looks < 4:
                    raise UnicodeError("label too long")
                return ["127.0.0.1"]

            monkeypatch.setattr(registration, "resolve", look)
            me = registration_at(f"http://gateways.lan:{port}")
            me.begin()
            await upstream.asked()
            me.close()

    caplog.set_level("WARNING", "tailrace")
    run(body())
    assert [record.getMessage().partition(": ")[2] for record in caplog.records] == ["UnicodeError: label too long"]


def test_a_name_that_cannot_be_one_keeps_no_other_gateway_from_hearing_that_it_goes() -> None:
    async def body() -> None:
        async with Upstream(json_answer({"lease": 15})) as upstream:
            settings = RegisterSettings(gateways=(f"http://{'a' * 64}.lan:1", upstream.url), group="g")
            me = Registration(settings, HopKey(KEY), ME, lambda: 0)
            me.begin()
            await upstream.asked()
            await me.leave()
            assert [request.json()["leave"] for request in upstream.requests][-1] is True

    run(body())


def test_every_address_of_a_gateways_name_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async def script(conn: Connection, request: Request) -> None:
        await conn.send(json_answer({"lease": 15}))

    async def body() -> None:
        async with Upstream(script) as upstream:
            port = upstream.url.rpartition(":")[2]

            async def both(host: str, _port: int) -> list[str]:
                assert host == "gateways.lan"
                return ["127.0.0.1", "127.0.0.2"]

            monkeypatch.setattr(registration, "resolve", both)
            me = registration_at(f"http://gateways.lan:{port}")
            me.begin()
            await upstream.asked()
            assert ("host", f"gateways.lan:{port}") in [
                (name.lower(), value) for name, value in upstream.requests[0].headers
            ]
            await until(lambda: "http://127.0.0.2:" + port in me._trouble)
            me.close()

    run(body())


@pytest.mark.parametrize(
    ("more", "listen", "why"),
    [
        ("register: {gateways: ['http://g:1'], group: g}\n", "127.0.0.1:0", "hop_key"),
        (f"hop_key: {KEY}\nregister: {{gateways: ['http://g:1'], group: g}}\n", "0.0.0.0:8000", "say with `as`"),
        (f"hop_key: {KEY}\nregister: {{gateways: [], group: g}}\n", "127.0.0.1:0", "register.gateways"),
        (f"hop_key: {KEY}\nregister: {{gateways: ['ftp://g'], group: g}}\n", "127.0.0.1:0", "gateways[0]: 'ftp://g'"),
        (f"hop_key: {KEY}\nregister: {{gateways: ['http://g'], group: g, as: x}}\n", "127.0.0.1:0", "register.as: 'x'"),
        (f"hop_key: {KEY}\nregister: {{gateways: ['http://g'], group: 'a b'}}\n", "127.0.0.1:0", "register.group"),
    ],
)
def test_what_cannot_be_meant(more: str, listen: str, why: str) -> None:
    with pytest.raises(ConfigError) as raised:
        worker_settings("{sim: {}}", more, listen)
    assert why in str(raised.value)


def test_one_that_listens_everywhere_may_say_where_it_is() -> None:
    more = f"hop_key: {KEY}\nregister: {{gateways: ['http://g:1'], group: g, as: 'http://10.0.0.9:8000'}}\n"
    settings = worker_settings("{sim: {}}", more, "0.0.0.0:8000")
    assert settings.register is not None
    assert settings.register.url == ME
