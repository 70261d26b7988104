"""One host's search: what configurations name is followed, what they name no more is let go, shortages are told."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from fakes import decoded, run, until
from sidecars import KEY
from tailrace.proxy.discovery import names, search
from tailrace.proxy.discovery.endpoint import Endpoint
from tailrace.proxy.discovery.search import Search

ONE, TWO = Endpoint("http://10.0.0.1:80"), Endpoint("http://10.0.0.2:80")


def settings(workers: str, more: str = "") -> object:
    return decoded(
        f"listen: 127.0.0.1:0\nhop_key: {KEY}\nmodels: {{m: {{pool: p}}}}\npools: {{p: {{workers: {workers}{more}}}}}\n"
    )


class Watching:
    """A search and how often it had news."""

    def __init__(self) -> None:
        self.news = 0
        self.search = Search(self._changed)

    def _changed(self) -> None:
        self.news += 1

    async def load(self, workers: str, more: str = "") -> None:
        await self.search.prepare(settings(workers, more))  # type: ignore[arg-type]
        self.search.commit()

    @property
    def members(self) -> dict[str, tuple[Endpoint, ...]]:
        return dict(self.search.found.members)


@asynccontextmanager
async def watching() -> AsyncIterator[Watching]:
    it = Watching()
    try:
        yield it
    finally:
        it.search.close()


def test_what_a_source_has_found_at_first_is_there_before_the_configuration_is_in_force(tmp_path: Path) -> None:
    async def body() -> None:
        file = tmp_path / "w.yaml"
        file.write_text(f"- {ONE.url}\n")
        async with watching() as it:
            await it.search.prepare(settings(f"[{{file: {file}}}]"))  # type: ignore[arg-type]
            assert it.members == {f"file {file}": (ONE,)}
            it.search.discard()
            assert it.members == {}
            await it.load(f"[{{file: {file}}}]")
            await it.load("['http://u']")
            assert it.members == {}

    run(body())


def test_a_source_whose_first_look_is_slow_holds_a_start_up_for_a_moment_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "FIRST", 0.01)
    go = asyncio.Event()

    async def slow(_host: str, _port: int) -> list[str]:
        await go.wait()
        return ["10.0.0.1"]

    monkeypatch.setattr(names, "resolve", slow)

    async def body() -> None:
        async with watching() as it:
            await it.load("[{dns: 'http://u'}]")
            assert it.members == {"dns http://u": ()}
            go.set()
            await until(lambda: it.members == {"dns http://u": (Endpoint(ONE.url, name="u"),)})

    run(body())


def test_a_first_look_that_takes_a_moment_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async def resolve(_host: str, _port: int) -> list[str]:
        await asyncio.sleep(0.02)
        return ["10.0.0.1"]

    monkeypatch.setattr(names, "resolve", resolve)

    async def body() -> None:
        async with watching() as it:
            await it.load("[{dns: 'http://u'}]")
            assert it.members["dns http://u"]

    run(body())


def test_what_is_the_same_stays_so_over_a_reload_while_a_name_server_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    silent = False

    async def resolve(_host: str, _port: int) -> list[str]:
        if silent:
            raise OSError("no answer")
        return ["10.0.0.1"]

    monkeypatch.setattr("tailrace.proxy.discovery.twins.resolve", resolve)

    async def body() -> None:
        nonlocal silent
        async with watching() as it:
            await it.load("['http://u', 'http://10.0.0.1']")
            assert it.search.found.same == {"http://10.0.0.1:80": "http://u:80"}
            silent = True
            await it.load("['http://10.0.0.1', 'http://u']")
            assert it.search.found.same == {"http://u:80": "http://10.0.0.1:80"}
            await it.load("['http://10.0.0.1', 'http://u', 'http://v:9']")
            assert it.search.found.same == {"http://u:80": "http://10.0.0.1:80"}

    run(body())


@pytest.mark.parametrize("end", ["commit", "discard"])
def test_what_is_the_same_stays_so_while_a_reload_is_prepared_and_after_it_was_refused(
    monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    async def resolve(_host: str, _port: int) -> list[str]:
        return ["10.0.0.1"]

    monkeypatch.setattr("tailrace.proxy.discovery.twins.resolve", resolve)
    present, coming = {"http://10.0.0.1:80": "http://u:80"}, {"http://10.0.0.1:81": "http://u:81"}

    async def body() -> None:
        async with watching() as it:
            await it.load("['http://u', 'http://10.0.0.1']")
            assert it.search.found.same == present
            seen = [present]
            it.search.changed = lambda: seen.append(dict(it.search.found.same))
            await it.search.prepare(settings("['http://u:81', 'http://10.0.0.1:81']"))  # type: ignore[arg-type]
            assert seen[-1] == present | coming
            getattr(it.search, end)()
            assert seen[-1] == (coming if end == "commit" else present)
            assert all(present.items() <= same.items() for same in seen[:-1])

    run(body())


def test_a_refused_reload_changes_nothing_in_how_a_name_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    followed: list[tuple[str, str]] = []

    class Recorded(names.WatchedName):
        async def look(self) -> float:
            followed.append((self._settings.url, f"{self._settings.every:g}"))
            return await super().look()

    async def resolve(_host: str, _port: int) -> list[str]:
        return ["10.0.0.1"]

    monkeypatch.setattr(search, "WatchedName", Recorded)
    monkeypatch.setattr(names, "resolve", resolve)

    async def body() -> None:
        async with watching() as it:
            await it.load("[{dns: 'http://u'}]")
            before = it.members
            await it.search.prepare(settings("[{dns: {url: 'http://u', every: 9s}}]"))  # type: ignore[arg-type]
            assert followed == [("http://u", "5"), ("http://u", "9")]
            it.search.discard()
            await until(lambda: len(followed) == 3)
            assert followed[-1] == ("http://u", "5")
            assert it.members == before

    run(body())


def test_one_that_is_followed_otherwise_keeps_what_it_had(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [["10.0.0.1"]]

    async def once(_host: str, _port: int) -> list[str]:
        if not answers:
            raise OSError("no answer")
        return answers.pop()

    monkeypatch.setattr(names, "resolve", once)

    async def body() -> None:
        async with watching() as it:
            await it.load("[{dns: 'http://u'}]")
            before = it.members
            await it.load("[{dns: {url: 'http://u', every: 9s}}]")
            assert it.members == before

    run(body())


def test_a_source_that_fails_in_a_way_of_its_own_is_looked_at_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(search, "FIRST", 0.01)
    faults = [ZeroDivisionError("a mistake")]

    async def resolve(_host: str, _port: int) -> list[str]:
        if faults:
            raise faults.pop()
        return ["10.0.0.1"]

    monkeypatch.setattr(names, "resolve", resolve)

    async def body() -> None:
        async with watching() as it:
            await it.load("[{dns: 'http://u'}]")
            await until(lambda: it.members["dns http://u"])

    run(body())
    assert "a source of workers could not be looked at" in caplog.text


def test_registrations_are_news_once_and_outlive_a_reload() -> None:
    async def body() -> None:
        async with watching() as it:
            await it.load("[{registered: g}]")
            news = it.news
            it.search.register("g", ONE)
            it.search.register("g", ONE)
            assert it.news == news + 1
            await it.load("[{registered: {group: g, lease: 30s}}, 'http://u']")
            assert it.members == {"registered g": (ONE,)}
            it.search.leave("g", ONE.url)
            it.search.leave("g", ONE.url)
            assert it.members == {"registered g": ()}
            with pytest.raises(KeyError):
                it.search.register("h", TWO)

    run(body())


def test_a_group_is_taken_from_the_moment_a_configuration_is_prepared() -> None:
    """The processes take it up one after the other, and each answers by its own."""

    async def body() -> None:
        async with watching() as it:
            await it.load("[{registered: g}]")
            await it.search.prepare(settings("[{registered: h}]"))  # type: ignore[arg-type]
            it.search.register("h", ONE)
            it.search.register("g", TWO)
            it.search.commit()
            assert it.members == {"registered h": (ONE,)}

    run(body())


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_shortage_is_told_when_workers_have_stopped_to_come(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(search, "QUIET", 0.05)

    async def body() -> None:
        async with watching() as it:
            await it.load("[{registered: g}]", ", peak: 100, concurrency: 50")
            for number in range(3):
                it.search.register("g", Endpoint(f"http://10.0.0.{number}"))
            await asyncio.sleep(0.1)
            assert not warnings(caplog)
            it.search.leave("g", "http://10.0.0.1")
            await until(lambda: warnings(caplog))
            it.search.register("g", Endpoint("http://10.0.0.2", 2.0))
            await asyncio.sleep(0.1)

    run(body())
    assert warnings(caplog) == [
        "pool 'p': without one of its 2 workers it carries 50 calls at once, counted at 50 a worker (`concurrency`), "
        "and 100 are expected (`peak`): 3 workers would do"
    ]


def test_a_shortage_of_those_that_are_listed_is_told_at_once(caplog: pytest.LogCaptureFixture) -> None:
    async def body() -> None:
        async with watching() as it:
            await it.load("['http://u', 'http://v']", ", peak: 100, concurrency: 50")
            await it.load("['http://u', 'http://v']", ", peak: 100, concurrency: 50")
            assert len(caplog.records) == 1

    run(body())
