"""Readiness where workers are there, but not heard; and what else says that nobody gets calls."""

from __future__ import annotations

import pytest
from fakes import RawClient, decoded, gateway, run, yaml_for
from scrape import Scrape
from tailrace.proxy.commands.workers import table
from tailrace.proxy.fleet import SILENT, SUSPECT
from tailrace.proxy.roll import described

HERE = "http://127.0.0.1:1", "http://127.0.0.1:2"
ELSEWHERE = """\
listen: [127.0.0.1:0]
pools: {a: {workers: ["http://127.0.0.1:1"]}, b: {workers: ["http://127.0.0.1:2", "http://127.0.0.1:3"]}}
models: {m: {pool: a}, n: {pool: b}}
"""


def takes_calls(worker) -> str:
    """The column of the list."""
    headings, row = table([{**described(worker), "lease": None}]).splitlines()
    at = headings.index("TAKES CALLS")
    return row[at:].split()[0]


def test_a_gateway_whose_workers_are_all_silent_is_not_ready():
    async def body():
        async with gateway(yaml_for(*HERE)) as process, RawClient(process.doors[0].shown) as client:
            one, two = process.workers()
            for worker in (one, two):
                worker.bar(SUSPECT)
            one.bar(SILENT)
            assert (await client.get("/readyz")).status == 200
            assert (takes_calls(one), takes_calls(two)) == ("no", "yes")
            two.bar(SILENT)
            answer = await client.get("/readyz")
            assert (answer.status, answer.json()["reasons"]) == (503, ["no worker is heard"])
            assert process.unready() == ["no worker is heard"]
            scrape = Scrape(process)
            assert [scrape.value("worker_eligible", worker=worker.name) for worker in (one, two)] == [0, 0]
            assert scrape.value("pool_eligible") == 0
            assert (takes_calls(one), takes_calls(two)) == ("no", "no")
            two.unbar(SILENT)
            assert (await client.get("/readyz")).status == 200

    run(body())


@pytest.mark.parametrize("by", ["breaker", SUSPECT])
def test_a_barred_worker_is_eligible_only_as_one_of_the_last(by):
    async def body():
        async with gateway(yaml_for(*HERE)) as process:
            one, two = process.workers()
            one.bar(by)
            scrape = Scrape(process)
            assert [scrape.value("worker_eligible", worker=worker.name) for worker in (one, two)] == [0, 1]
            two.bar(by)
            assert Scrape(process).value("worker_eligible") == 1
            assert sorted([takes_calls(one), takes_calls(two)]) == ["no", "yes"]
            assert process.unready() == []

    run(body())


def test_each_pool_is_told_apart_and_leaves_with_its_configuration():
    async def body():
        async with gateway(ELSEWHERE) as process:
            (worker, *_) = process.pools["a"].workers
            worker.standing.dead = True
            worker.changed()
            scrape = Scrape(process)
            assert [scrape.value("pool_eligible", pool=name) for name in "ab"] == [0, 2]
            await process.load(decoded(ELSEWHERE.replace("a: {w", "c: {w").replace("m: {pool: a}", "m: {pool: c}")))
            scrape = Scrape(process)
            assert [scrape.value("pool_eligible", pool=name) for name in "abc"] == [None, 2, 0]

    run(body())
