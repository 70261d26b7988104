"""Gauges: of the process, of its workers, of workers that were removed."""

import pytest
from fakes import CHAT, GOOD, PATH, RawClient, Upstream, decoded, gateway, run, until, yaml_for
from scrape import Scrape
from tailrace.proxy.fleet import SILENT


def test_levels_of_the_process():
    async def body():
        async with Upstream(GOOD) as upstream, gateway(yaml_for(upstream)) as process:
            async with RawClient(process.doors[0].shown) as client:
                await client.post(PATH, CHAT)
                await client.request("POST", PATH, b"{" * 100, {"content-length": "1000"})
                await until(lambda: process.service.memory.used, "the body")
                scrape = Scrape(process)
        assert scrape.value("connections_open") == 1
        assert scrape.value("requests_active") == 1
        assert scrape.value("body_memory_bytes") == 100
        assert scrape.value("body_memory_limit_bytes") == 1 << 30
        assert scrape.value("config_generation") == 1
        assert scrape.value("upstream_connections_open", worker=upstream.url) >= 1

    run(body())


@pytest.mark.parametrize(
    ("processes", "limits", "part"),
    [(1, "body_memory: 8MiB, body: 1MiB", 8 << 20), (4, "body_memory: 8MiB, body: 1MiB", 2 << 20),
     (16, "body_memory: 8MiB, body: 1MiB", 1 << 20), (2, "body: 1MiB", 1 << 29)],
)  # fmt: skip
def test_a_process_has_its_part_of_the_memory_for_bodies(processes, limits, part):
    async def body():
        yaml = yaml_for("http://127.0.0.1:1", more=f"processes: {processes}\nlimits: {{{limits}}}\n")
        async with gateway(yaml) as process:
            assert process.service.memory.limit == part
            assert Scrape(process).value("body_memory_limit_bytes") == part
            # Another number of processes waits for a restart.
            await process.load(decoded(yaml.replace(f"processes: {processes}", "processes: 3")))
            assert process.service.memory.limit == part

    run(body())


def test_levels_of_workers():
    async def body():
        async with gateway(yaml_for("http://127.0.0.1:1", "http://127.0.0.1:2")) as process:
            one, two = process.workers()
            one.standing.running = 0
            one.standing.dead = True
            two.drained = True
            return Scrape(process), one.name, two.name

    scrape, one, two = run(body())
    assert scrape.value("worker_up", worker=one) == scrape.value("worker_eligible", worker=one) == 0
    assert scrape.value("worker_up", worker=two) == 1
    assert scrape.value("worker_eligible", worker=two) == 0
    assert scrape.value("worker_running", worker=one) == 0
    assert scrape.value("worker_running", worker=two) is None
    assert scrape.value("worker_waiting") is None


def test_the_emptiest_worker_that_gets_calls_tells_whether_a_pool_is_full():
    async def body():
        async with gateway(yaml_for(*(f"http://127.0.0.1:{port}" for port in (1, 2, 3)))) as process:
            one, two, three = process.workers()
            assert Scrape(process).value("pool_waiting") is None, "nobody says"
            one.standing.waiting, two.standing.waiting = 7, 3
            assert Scrape(process).value("pool_waiting", pool="model:m") == 3
            three.standing.waiting = 0
            assert Scrape(process).value("pool_waiting") == 0
            three.standing.dead = True
            three.changed()
            assert Scrape(process).value("pool_waiting") == 3, "what a dead one says counts for nothing"
            two.bar("breaker")
            two.bar(SILENT)
            return Scrape(process)

    assert run(body()).value("pool_waiting") == 7


def test_one_address_with_two_keys_is_shown_once():
    async def body():
        yaml = """
            listen: [127.0.0.1:0]
            pools:
              a: {workers: ["http://127.0.0.1:1"], api_key: one}
              b: {workers: ["http://127.0.0.1:1"], api_key: two}
            models: {m: {pool: a}, n: {pool: b}}
        """
        async with gateway(yaml) as process:
            for worker, inflight in zip(process.workers(), (1, 2), strict=True):
                worker.inflight = inflight
            return Scrape(process)

    assert run(body()).value("worker_inflight") == 3


def test_a_removed_worker_disappears_when_its_last_attempt_is_over():
    async def body():
        async with Upstream(GOOD) as old, gateway(yaml_for(old)) as process:
            async with RawClient(process.doors[0].shown) as client:
                await client.post(PATH, CHAT)
            (worker,) = process.workers()
            worker.inflight = 1
            Scrape(process)
            await process.load(decoded(yaml_for("http://127.0.0.1:1")))
            assert Scrape(process).value("worker_inflight", worker=old.url) == 1
            worker.inflight = 0
            scrape = Scrape(process)
            assert scrape.value("worker_inflight", worker=old.url) is None
            assert scrape.value("worker_up", worker="http://127.0.0.1:1") == 1
            assert scrape.value("config_generation") == 2

    run(body())


def test_workers_that_come_and_go_for_ever_stay_visible():
    async def body():
        async with gateway(yaml_for("http://127.0.0.1:1")) as process:
            for number in range(1, 1500):
                (worker,) = process.workers()
                worker.name = f"http://10.0.{number // 256}.{number % 256}:8000"
                process.service.metrics.write()
            return Scrape(process), worker.name

    scrape, last = run(body())
    assert scrape.value("worker_up", worker=last) == 1
    assert scrape.value("worker_up") == 1
    assert scrape.value("metrics_series_folded_total") == 0


def test_gauges_and_stalls_are_written_without_being_asked():
    async def body():
        async with gateway(yaml_for("http://127.0.0.1:1")) as process, RawClient(process.doors[0].shown):
            await until(lambda: _level(process, "tailrace_connections_open") == 1, "the gauge")
            return Scrape(process)

    def _level(process, name):
        return process.service.metrics.segment.read()[name][1][()][0]

    assert run(body()).value("loop_stall_seconds_count") >= 1
