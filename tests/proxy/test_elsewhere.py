"""Which pool a name stands for where calls are sent elsewhere, and when it was one of those that were tried."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from fakes import Upstream, gateway, run, yaml_for
from tailrace.proxy.elsewhere import Elsewhere

SPARE = Elsewhere(pool="spare")


def fake(*names: str, gone: bool = False) -> Any:
    """A pool `spare` with these workers, whom a reload has removed or not."""
    workers = tuple(SimpleNamespace(name=name, pools=[]) for name in names)
    pool = SimpleNamespace(name="spare", workers=workers, eligible=list(workers))
    for worker in workers:
        worker.pools = [] if gone else [pool]
    return pool


class Unlisted:
    """Workers that are not looked through."""

    def __iter__(self) -> Any:
        raise AssertionError("all workers of the chain are walked")


def call_of(**pools: Any) -> Any:
    return SimpleNamespace(chain=SimpleNamespace(pools=pools, pins=Unlisted()))


def tried(worker: Any) -> Any:
    return SimpleNamespace(worker=worker)


def test_a_pool_is_found_by_its_name_alone() -> None:
    pool = fake("a", "b")
    target = SPARE.target(call_of(spare=pool), [], "fallback")
    assert target is not None
    assert (target.pool, target.why) == (pool, "fallback")
    assert SPARE.target(call_of(other=pool), [], "fallback") is None
    pool.eligible.clear()
    assert SPARE.target(call_of(spare=pool), [], "fallback") is None


@pytest.mark.parametrize("gone", [False, True])
def test_each_pool_once_also_where_its_workers_have_been_removed(gone: bool) -> None:
    pool = fake("a", "b", gone=gone)
    other = SimpleNamespace(name="c", pools=[SimpleNamespace(name="main")])
    assert SPARE.target(call_of(spare=pool), [tried(other)], "fallback") is not None
    assert SPARE.target(call_of(spare=pool), [tried(other), tried(pool.workers[1])], "fallback") is None


def test_a_chain_knows_the_pools_of_its_configuration() -> None:
    async def body() -> None:
        async with Upstream(b"") as upstream, gateway(yaml_for(upstream)) as process:
            assert process.service.chain.pools == process.pools
            assert process.pools

    run(body())
