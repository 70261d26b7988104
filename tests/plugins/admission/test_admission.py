"""The plugin `admission` in a gateway: places, waits, refusals, priorities, and how many places there are."""

from __future__ import annotations

import pytest
from admitted import Held, asks, begin, chain, counted, plugin_of, with_classes
from cases.scene import CHAT, scene, until
from fakes import decoded, gateway, run, yaml_for
from sidecars import HeldEngine, found, sidecar, url_of
from tailrace.plugins.admission import plugin
from tailrace.proxy.config import ConfigError
from tailrace.proxy.gateway import running
from tailrace.proxy.outcome import Ending


def test_calls_wait_for_a_place_and_get_it():
    async def main():
        held = Held()
        async with scene(held, plugins=chain("{capacity: 2}")) as s:
            clients = [await s.begin(asks(user)) for user in "abc"]
            await until(lambda: len(held.seen) == 2 and counted(s, "waiting") == 1)
            assert counted(s, "inside") == 2
            held.release()
            await until(lambda: len(held.seen) == 3)
            held.release(2)
            for client in clients:
                assert (await client.read_answer()).status == 200
            await s.at_rest()
            assert counted(s, "inside") == counted(s, "waiting") == 0
            assert counted(s, "admitted_total") == 3
            assert counted(s, "waited_total") == 1
            # What it waited is no work of the gateway's.
            assert [call.waited_ns > 0 for call in s.witness.calls].count(True) == 1

    run(main())


def test_a_full_line_is_an_honest_refusal_at_once():
    async def main():
        held = Held()
        config = "{capacity: 1, classes: [{name: only, queue: 1}]}"
        async with scene(held, plugins=chain(config)) as s:
            clients = [await s.begin(asks("a")), await s.begin(asks("b"))]
            await until(lambda: counted(s, "waiting") == 1)
            answer = await s.ask(CHAT)
            assert (answer.status, answer.json()["error"]["code"]) == (503, "gateway_overloaded")
            assert int(answer.header("retry-after") or 0) >= 1
            assert (await s.outcome()).ending is Ending.REFUSED
            assert counted(s, "refused_total", **{"class": "only", "why": "full"}) == 1
            held.release(2)
            for client in clients:
                assert (await client.read_answer()).status == 200

    run(main())


def test_a_wait_ends_with_the_limit_of_its_class():
    async def main():
        held = Held()
        async with scene(held, plugins=chain("{capacity: 1, classes: [{name: only, wait: 50ms}]}")) as s:
            first = await s.begin(asks("a"))
            await until(lambda: len(held.seen) == 1)
            answer = await s.ask(CHAT)
            assert answer.status == 503
            assert "0.05 s" in answer.json()["error"]["message"]
            assert counted(s, "refused_total", why="waited") == 1
            held.release()
            assert (await first.read_answer()).status == 200
            assert held.seen == ["a"]

    run(main())


def test_a_wait_ends_with_the_budgets_part_for_queues():
    async def main():
        held = Held()
        budget = "- deadline: {budgets: [{total: 10s, stages: {queue: 50ms}}]}"
        async with scene(held, plugins=chain("{capacity: 1}", budget)) as s:
            first = await s.begin(asks("a"))
            await until(lambda: len(held.seen) == 1)
            answer = await s.ask(CHAT)
            assert answer.status == 503
            assert "0.05 s" in answer.json()["error"]["message"]
            held.release()
            assert (await first.read_answer()).status == 200

    run(main())


def test_DIS_04_gone_while_it_waits():
    async def main():
        held = Held()
        async with scene(held, plugins=chain("{capacity: 1}")) as s:
            first = await s.begin(asks("a"))
            await until(lambda: len(held.seen) == 1)
            second = await s.begin(asks("b"))
            await until(lambda: counted(s, "waiting") == 1)
            await second.close()
            await until(lambda: counted(s, "waiting") == 0)
            assert (await s.outcome()).ending is Ending.CLIENT_GONE
            held.release()
            assert (await first.read_answer()).status == 200
            assert held.seen == ["a"]

    run(main())


def test_LIF_06_a_call_is_judged_again_when_it_leaves_the_line():
    async def main():
        held = Held()
        async with with_classes(held) as s:
            first = await s.begin(asks("a"))
            await until(lambda: held.seen == ["a"])
            second = await s.begin(asks("revoked"))
            await until(lambda: counted(s, "waiting") == 1)
            held.release()
            assert (await first.read_answer()).status == 200
            assert (await second.read_answer()).status == 401
            assert held.seen == ["a"]

    run(main())


def test_LIF_06_so_is_one_that_gave_way():
    async def main():
        held = Held()
        async with with_classes(held) as s:
            batch = await begin(s, "revoked", "batch")
            await until(lambda: held.seen == ["revoked"])
            hasty = await begin(s, "i")
            await until(lambda: held.seen == ["revoked", "i"])
            held.release()
            assert (await hasty.read_answer()).status == 200
            assert (await batch.read_answer()).status == 401
            assert held.seen == ["revoked", "i"]

    run(main())


def test_the_first_class_goes_first():
    async def main():
        held = Held()
        async with with_classes(held, "{capacity: 1, classes: [{name: interactive}, {name: batch}]}") as s:
            clients = []
            for user, of in (("b0", "batch"), ("b1", "batch"), ("i0", "interactive"), ("b2", "batch")):
                clients.append(await begin(s, user, of))
                await until(lambda: counted(s, "inside") + counted(s, "waiting") == len(clients))
            held.release(4)
            for client in clients:
                assert (await client.read_answer()).status == 200
            assert held.seen == ["b0", "i0", "b1", "b2"]

    run(main())


def test_the_most_urgent_of_a_class_goes_first():
    async def main():
        held = Held()
        async with with_classes(held, "{capacity: 1}", "- deadline: {}") as s:
            clients = [await begin(s, "first")]
            for user, ms in (("late", "9000"), ("soon", "2000"), ("none", "")):
                headers = {"x_tailrace_budget_ms": ms} if ms else {}
                clients.append(await begin(s, user, **headers))
                await until(lambda: counted(s, "inside") + counted(s, "waiting") == len(clients))
            held.release(4)
            for client in clients:
                assert (await client.read_answer()).status == 200
            # Who says nothing is due when it would be sent away, in 5 s.
            assert held.seen == ["first", "soon", "none", "late"]

    run(main())


def priority_of(config: str, of: str, body: dict) -> object:
    async def main():
        held = Held()
        held.release()
        async with with_classes(held, config) as s:
            client = await begin(s, "x", of, body)
            assert (await client.read_answer()).status == 200
            return s.upstream.requests[0].json().get("priority")

    return run(main())


def test_engines_that_go_by_priorities_are_told():
    told = "{pools: {'model:m': {priority: true}}}"
    assert priority_of(told, "batch", CHAT) == 10
    assert priority_of(told, "interactive", CHAT) is None
    assert priority_of(told, "batch", {**CHAT, "priority": -5}) == 10, "whatever a client says of itself"
    assert priority_of(told, "interactive", {**CHAT, "priority": -5}) == 0
    assert priority_of("{}", "batch", CHAT) is None, "other engines refuse it"


def test_the_places_are_those_that_sidecars_have():
    async def main():
        async with HeldEngine() as engine, sidecar(found(engine.url), "concurrency: 3\n") as worker:
            settings = decoded(yaml_for(url_of(worker), plugins="[admission]"))
            async with running(settings, watching=True) as process:
                [standing] = [each.standing for each in process.workers()]
                await until(lambda: standing.concurrency == 3)
                admission = process.service.chain.pipeline.links[0].plugin
                [pool] = process.pools.values()
                assert admission.usher.capacity(pool) == 3

    run(main())


@pytest.mark.interpreted  # a method is replaced
def test_looking_at_places_goes_on_whatever_comes_up(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture):
    monkeypatch.setattr(plugin, "LOOK", 0.005)

    async def main():
        held = Held()
        async with scene(held, plugins=chain("{capacity: 1}")) as s:
            clients = [await s.begin(asks(user)) for user in "ab"]
            await until(lambda: counted(s, "waiting") == 1)
            mishaps = [RuntimeError("once"), RuntimeError("and again")]

            def capacity(pool: object) -> int:
                if mishaps:
                    raise mishaps.pop()
                return 2

            plugin_of(s).usher.capacity = capacity
            await until(lambda: counted(s, "inside") == 2)
            held.release(2)
            for client in clients:
                assert (await client.read_answer()).status == 200

    run(main())
    assert "the places of pool 'model:m' could not be looked at" in caplog.text


def test_a_process_has_its_part():
    async def main():
        async with gateway(yaml_for("http://127.0.0.1:1", plugins="[admission: {capacity: 5}]")) as process:
            admission = process.service.chain.pipeline.links[0].plugin
            admission.usher._processes = 4
            [pool] = process.pools.values()
            return admission.usher.capacity(pool)

    assert run(main()) == 2


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ("{classes: []}", "classes"),
        ("{classes: [{name: a}, {name: a}]}", "listed twice"),
        ("{classes: [{name: a, reserve: 0.6}, {name: b, reserve: 0.6}]}", "more than all"),
        ("{default: nobody}", "there is no class 'nobody'"),
        ("{capacity: 0}", "capacity"),
    ],
)
def test_nonsense_is_refused(config: str, told: str):
    with pytest.raises(ConfigError, match=told):
        decoded(yaml_for("http://127.0.0.1:1", plugins=f"[admission: {config}]"))
