"""Large changes of what is found, which are taken up in steps."""

from __future__ import annotations

from fakes import decoded, run, until
from tailrace.proxy.discovery.endpoint import Endpoint, Found
from tailrace.proxy.discovery.steps import MOST, towards
from tailrace.proxy.gateway import running
from tailrace.proxy.process import Occupant

KEY, OTHER = "file /w.yaml", "file /v.yaml"


def named(first: int, count: int, **fields: float) -> tuple[Endpoint, ...]:
    return tuple(Endpoint(f"http://10.0.{n // 250}.{n % 250}:80", **fields) for n in range(first, first + count))


def test_a_small_change_is_one_step() -> None:
    now, aim = Found({KEY: named(0, 50)}), Found({KEY: named(40, 50)[::-1]}, {"http://a": "http://b"})
    assert towards(now, aim) == aim


def test_a_large_change_brings_newcomers_first_and_comes_to_its_end() -> None:
    aim = Found({KEY: named(1000, 250), OTHER: named(0, 30)})
    found, sizes = Found({KEY: named(0, 250)}), []
    while found != aim:
        before, found = found, towards(found, aim)
        changed = set(before.members[KEY]) ^ set(found.members[KEY])
        assert len(changed) <= MOST
        sizes.append(len(found.members[KEY]))
    assert sizes == [350, 450, 450, 350, 250, 250]
    assert found.members == aim.members


def test_two_sources_share_the_steps() -> None:
    aim = Found({KEY: named(0, 80), OTHER: named(100, 80)})
    first = towards(Found(), aim)
    assert (len(first.members[KEY]), len(first.members[OTHER])) == (80, MOST - 80)
    assert towards(first, aim) == aim


def test_changed_weights_are_taken_up_in_steps() -> None:
    found, aim = Found({KEY: named(0, 150)}), Found({KEY: named(0, 150, weight=2.0)})
    for _ in range(3):
        found = towards(found, aim)
    assert found == aim


def test_a_process_takes_up_thousands_in_steps_and_the_newest_last() -> None:
    """What is found meanwhile counts, and what was found before does not."""
    settings = decoded(
        "listen: 127.0.0.1:0\npools: {p: {workers: [http://127.0.0.1:1, {file: /w.yaml}]}}\n"
        "models: {m: {pool: p}}\nplugins: []\n"
    )

    async def body() -> None:
        async with running(settings) as process:
            pool, sizes = process.pools["p"], []
            take_up = process.roster.update

            def noted(found: Found) -> None:
                take_up(found)
                sizes.append(len(pool.workers))

            process.roster.update = noted  # type: ignore[method-assign]
            process.discovered(Found({KEY: named(0, 350)}))
            assert sizes == [1 + MOST]
            process.discovered(Found({KEY: named(0, 220)}))
            assert sizes == [1 + MOST]
            await until(lambda: len(sizes) == 3)
            assert sizes == [1 + MOST, 1 + 2 * MOST, 221]
            process.discovered(Found({KEY: ()}))
        assert sizes[3:] == [121]  # a process that has ended goes no further

    run(body())


def test_one_that_is_drained_and_comes_late_is_drained() -> None:
    settings = decoded(
        "listen: 127.0.0.1:0\npools: {p: {workers: [http://127.0.0.1:1, {file: /w.yaml}]}}\n"
        "models: {m: {pool: p}}\nplugins: []\n"
    )
    endpoints = named(0, 3 * MOST)

    async def body() -> None:
        async with running(settings) as process:
            occupant = Occupant()
            occupant._process = process
            await occupant.answer("drained", {"names": [endpoints[-1].url]})
            found = {"number": 2, **Found({KEY: endpoints}).plain()}
            await occupant.answer("found", {"found": found})
            await until(lambda: len(process.pools["p"].workers) == 1 + 3 * MOST)
            (drained,) = [worker.name for worker in process.roster.workers if worker.drained]
            assert drained == endpoints[-1].url
            assert len(process.pools["p"].eligible) == 3 * MOST

    run(body())
