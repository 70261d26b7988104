"""What plugins run once on a host: begun before the processes, asked by them, told of their ends, reloaded."""

import os
import shutil
import signal
from pathlib import Path

import counted
import pytest
from fakes import CHAT, PATH, RawClient, gateway, run, yaml_for
from scrape import Scrape
from served import QUICK, Served, serving
from tailrace.proxy.ground import NOTE, Places, Taken, claim
from tailrace.proxy.host import Host
from tailrace.proxy.metrics.process import ProcessMetrics
from tailrace.proxy.pipeline import ChainError, Link, hosted_links


def chain(state: Path, plugins: str, more: str = QUICK) -> str:
    return yaml_for("http://127.0.0.1:1", more=f"{more}state: {state}\n", plugins=plugins)


async def next_of(url: str, question: str = "next") -> object:
    async with RawClient(url) as client:
        answer = await client.post(PATH, CHAT, {"x-question": question})
        return answer.json() if answer.status == 200 else answer.status


def test_a_gateway_without_a_supervisor_runs_the_part_itself(tmp_path: Path) -> None:
    async def body() -> None:
        async with gateway(chain(tmp_path / "state", "- counted:Counted: {first: 5}")) as process:
            url = process.doors[0].shown
            assert [await next_of(url) for _ in range(3)] == [[0, 6], [0, 7], [0, 8]]
            scrape = Scrape(process)
            assert scrape.value("counted_counted_asked_total") == 3
            assert scrape.value("counted_counted_count") == 8
            with pytest.raises(Taken, match="another tailrace uses the state folder"):
                claim(Places.of(tmp_path / "state"))
        assert (tmp_path / "state" / "ended").exists()
        os.close(claim(Places.of(tmp_path / "state")))

    run(body())


def test_a_part_that_fails_refuses_and_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def body() -> None:
        async with gateway(chain(tmp_path, "- counted:Counted: {}")) as process:
            url = process.doors[0].shown
            assert await next_of(url, "fail") == 503
            assert await next_of(url) == [0, 1]

    run(body())
    assert "the part of plugin 'counted:Counted' on this host failed at 'fail'" in caplog.text


def test_one_count_for_all_processes_and_their_ends_are_told(tmp_path: Path) -> None:
    shutil.copy(counted.__file__, tmp_path)

    async def body() -> None:
        yaml = chain(tmp_path / "state", "- counted:Counted: {}", QUICK + "processes: 2\n")
        async with serving(tmp_path, yaml) as it:
            found = [await next_of(it.url) for _ in range(12)]
            assert [number for _, number in found] == list(range(1, 13))  # type: ignore[misc]
            assert {seat for seat, _ in found} == {0, 1}  # type: ignore[misc]
            os.kill(it.processes[0], signal.SIGKILL)
            await it.until("SIGKILL; it is replaced")
            gone: object = []
            while not gone:
                gone = await next_of(it.url, "gone")
            assert gone in ([0], [1])
            assert await shown(it) == ["asked_total 12", "count 12"]
            await reloaded(it, tmp_path)
            it.signal(signal.SIGTERM)
            assert await it.end() == 0
        assert (tmp_path / "state" / "ended").exists()
        assert not Places.of(tmp_path / "state").shared.exists()

    run(body(), limit=60)


async def reloaded(it: Served, folder: Path) -> None:
    """A changed configuration reaches the part; one that it cannot follow, or cannot start by, leaves it as it is."""
    state = folder / "state"
    more = QUICK + "processes: 2\n"
    it.file.write_text(chain(state, "- counted:Counted: {first: 100}", more))
    await it.generation(2)
    assert (await next_of(it.url))[1] == 101  # type: ignore[index]
    it.file.write_text(chain(state, "- counted:Counted: {first: -1}", more))
    await it.until("goes on by its old configuration on this host")
    assert (await next_of(it.url))[1] == 102  # type: ignore[index]
    it.file.write_text(chain(state, "- headers: {}\n- counted:Counted: {first: 100}\n- counted:Counted: {}", more))
    await it.until("can stand in a chain only once")
    assert (await next_of(it.url))[1] == 103  # type: ignore[index]
    assert await shown(it) == ["asked_total 15", "count 103"]
    it.file.write_text(chain(state, "- counted:Counted: {first: 950}", more))
    await it.generation(4)
    assert "the count is full" in (await it.get("/readyz")).body.decode()
    it.file.write_text(chain(state, "- headers: {}", more))
    await it.generation(5)
    assert (state / "ended").exists()
    assert "the count is full" not in (await it.get("/readyz")).body.decode()
    assert await shown(it) == ["asked_total 16"], "its end counts, too"
    it.file.write_text(chain(state, "- counted:Counted: {first: 7}", more))
    await it.generation(6)
    await next_of(it.url)
    assert await shown(it) == ["asked_total 17", "count 8"]


async def shown(it: Served) -> list[str]:
    """What the admin port shows of the part."""
    start = "tailrace_counted_counted_"
    page: str = (await it.get("/metrics")).body.decode()
    return [line.removeprefix(start) for line in page.splitlines() if line.startswith(start)]


def test_a_part_that_cannot_begin_ends_the_start_with_one_line(tmp_path: Path) -> None:
    shutil.copy(counted.__file__, tmp_path)

    async def body() -> None:
        with pytest.raises(AssertionError, match="13 is no number to begin with"):
            async with serving(tmp_path, chain(tmp_path / "state", "- counted:Counted: {first: 13}")):
                pass

    run(body())


def test_what_was_begun_ends_where_a_later_part_cannot_begin(tmp_path: Path) -> None:
    async def body() -> None:
        host = Host(Places.of(tmp_path), ProcessMetrics().host_values)
        good, bad = (Link(counted.Counted(counted.Config(first=n)), f"n{n}") for n in (1, 13))
        with pytest.raises(ValueError, match="13"):
            await host.prepare([good, bad])
        assert (tmp_path / "ended").exists()
        await host.prepare([good])
        await host.commit()
        assert await host.answer(3, "n1", "next", {"by": 2}) == [3, 3]
        await host.close()

    run(body())


def test_what_nobody_took_up_ends_before_it_is_begun_again(tmp_path: Path) -> None:
    async def body() -> None:
        host = Host(Places.of(tmp_path), ProcessMetrics().host_values)
        link = Link(counted.Counted(counted.Config()), "n")
        await host.prepare([link])
        await host.prepare([link])
        assert (tmp_path / "ended").exists()
        await host.close()

    run(body())


def test_a_clean_end_takes_the_shared_folder_along_unless_something_must_outlive_it(tmp_path: Path) -> None:
    shared = Places.of(tmp_path).shared

    async def body() -> None:
        for kept in (None, shared / "deep" / "ring"):
            async with gateway(chain(tmp_path, "- counted:Counted: {}")):
                (shared / "deep" / "empty").mkdir(parents=True)
                if kept is not None:
                    kept.touch()
            assert shared.exists() == (kept is not None)
        assert sorted(shared.rglob("*")) == [shared / "deep", shared / "deep" / "ring", shared / NOTE]

    try:
        run(body())
    finally:
        shutil.rmtree(shared, ignore_errors=True)


def test_one_that_is_refused_takes_nothing_along(tmp_path: Path) -> None:
    shared = Places.of(tmp_path).shared

    async def body() -> None:
        async with gateway(chain(tmp_path, "- counted:Counted: {}")):
            with pytest.raises(Taken):
                async with gateway(chain(tmp_path, "- counted:Counted: {}")):
                    pass
            assert shared.exists()
        assert not shared.exists()

    run(body())


def test_a_start_while_another_one_ends_has_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def claimed(places: Places) -> int:
        """The other one lets go right before."""
        places.make()
        places.leave()
        return claim(places)

    async def body() -> None:
        monkeypatch.setattr("tailrace.proxy.host.claim", claimed)
        async with gateway(chain(tmp_path, "- counted:Counted: {}")) as process:
            assert process._host is not None
            assert process._host.places.shared.is_dir()

    run(body())


def test_two_of_the_same_cannot_stand_in_a_chain() -> None:
    links = [Link(counted.Counted(counted.Config()), "twice") for _ in range(2)]
    with pytest.raises(ChainError, match="only once") as error:
        hosted_links(links)
    assert error.value.link == 1


def test_a_shared_folder_of_somebody_else_is_not_used(tmp_path: Path) -> None:
    places = Places.of(tmp_path)
    places.shared.mkdir(mode=0o777)
    places.shared.chmod(0o777)
    try:
        with pytest.raises(PermissionError, match="belongs to this user alone"):
            places.make()
    finally:
        places.shared.rmdir()
