"""Names with an address for each worker, and URLs that are one endpoint."""

from __future__ import annotations

import asyncio
import socket

import pytest
from fakes import run
from tailrace.proxy.discovery import names
from tailrace.proxy.discovery.endpoint import Endpoint
from tailrace.proxy.discovery.names import WatchedName, resolve
from tailrace.proxy.discovery.settings import Name
from tailrace.proxy.discovery.twins import Twins

GONE = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
SILENT = socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
Answers = dict[str, list[str] | OSError]


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Answers:
    """What names resolve to."""
    table: Answers = {}

    async def looked_up(host: str, _port: int) -> list[str]:
        answer = table[host]
        if isinstance(answer, OSError):
            raise answer
        return answer

    monkeypatch.setattr(names, "resolve", looked_up)
    monkeypatch.setattr("tailrace.proxy.discovery.twins.resolve", looked_up)
    return table


class Name1:
    """One watched name on a clock of its own."""

    def __init__(self, url: str = "http://vllm.svc:8000", keep: float = 60.0) -> None:
        self.now = 0.0
        self.name = WatchedName(Name(url=url, keep=keep), lambda: self.now, lambda: 0.5)

    def look(self) -> list[str]:
        asyncio.run(self.name.look())
        return [endpoint.url for endpoint in self.name.found]


def test_each_address_is_a_worker_that_is_called_by_the_name(answers: Answers) -> None:
    answers["vllm.svc"] = ["10.0.0.1", "10.0.0.2"]
    name = Name1("https://vllm.svc:8443/gpu")
    name.look()
    assert name.name.found == (
        Endpoint("https://10.0.0.1:8443/gpu", name="vllm.svc"),
        Endpoint("https://10.0.0.2:8443/gpu", name="vllm.svc"),
    )
    answers["vllm.svc"] = ["fd00::2"]
    assert name.look() == ["https://[fd00::2]:8443/gpu"]


def test_it_is_looked_up_at_its_interval(answers: Answers) -> None:
    answers["vllm.svc"] = ["10.0.0.1"]
    assert asyncio.run(Name1().name.look()) == pytest.approx(5.0)


def test_a_name_that_is_gone_keeps_its_last_addresses_for_a_time(
    answers: Answers, caplog: pytest.LogCaptureFixture
) -> None:
    answers["vllm.svc"] = ["10.0.0.1"]
    name = Name1()
    name.look()
    answers["vllm.svc"] = GONE
    for name.now in (5.0, 30.0, 64.9):
        assert name.look() == ["http://10.0.0.1:8000"]
    assert len(caplog.records) == 1
    assert "its last addresses stay for 60 s" in caplog.text
    name.now = 65.0
    assert name.look() == []
    assert "and so are its workers" in caplog.text
    answers["vllm.svc"] = ["10.0.0.2"]
    assert name.look() == ["http://10.0.0.2:8000"]
    assert name.name.trouble == ""


def test_a_name_that_comes_back_in_time_begins_anew(answers: Answers) -> None:
    name = Name1()
    answers["vllm.svc"] = ["10.0.0.1"]
    name.look()
    for answers["vllm.svc"], name.now in ((GONE, 5.0), (["10.0.0.1"], 50.0), (GONE, 70.0)):
        assert name.look() == ["http://10.0.0.1:8000"]


def test_a_name_server_that_does_not_answer_changes_nothing(answers: Answers) -> None:
    name = Name1()
    answers["vllm.svc"] = ["10.0.0.1"]
    name.look()
    answers["vllm.svc"] = SILENT
    for name.now in (5.0, 100.0, 10_000.0):
        assert name.look() == ["http://10.0.0.1:8000"]


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (["10.0.0.2", "10.0.0.1", "10.0.0.2"], ["10.0.0.1", "10.0.0.2"]),
        (["fd00::1", "10.0.0.1"], ["10.0.0.1"]),
        (["fd00::2", "fd00::1"], ["fd00::1", "fd00::2"]),
    ],
    ids=["in order", "of one family", "of the other"],
)
def test_resolving(found: list[str], expected: list[str]) -> None:
    async def body() -> None:
        loop = asyncio.get_running_loop()

        async def getaddrinfo(host: str, port: int, *, type: int) -> list[object]:  # noqa: A002
            families = [socket.AF_INET6 if ":" in ip else socket.AF_INET for ip in found]
            return [(family, type, 6, "", (ip, port)) for family, ip in zip(families, found, strict=True)]

        loop.getaddrinfo = getaddrinfo  # type: ignore[method-assign,assignment]
        assert await resolve("x", 1) == expected

    asyncio.run(body())


def test_a_name_that_nobody_knows_really_counts_as_gone() -> None:
    async def body() -> None:
        with pytest.raises(OSError) as raised:
            await resolve("no.such.name.invalid", 80)
        assert raised.value.errno in {*names._GONE, socket.EAI_AGAIN}

    run(body())


def test_a_look_up_that_hangs_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "PATIENCE", 0.01)

    async def body() -> None:
        async def forever(*_: object, **__: object) -> None:
            await asyncio.Event().wait()

        asyncio.get_running_loop().getaddrinfo = forever  # type: ignore[method-assign,assignment]
        with pytest.raises(OSError, match="no answer within") as raised:
            await resolve("x", 1)
        assert raised.value.errno == socket.EAI_AGAIN

    asyncio.run(body())


def same(*urls: str) -> dict[str, str]:
    twins = Twins(urls)
    asyncio.run(twins.look())
    return twins.same


def test_a_host_under_its_name_and_its_address_is_one(answers: Answers) -> None:
    answers["gpu1"] = answers["gpu1.lan"] = ["10.0.0.1"]
    assert same("http://gpu1:80", "http://10.0.0.1", "http://gpu1.lan") == {
        "http://10.0.0.1:80": "http://gpu1:80",
        "http://gpu1.lan:80": "http://gpu1:80",
    }


def test_other_ports_paths_schemes_and_addresses_are_others(answers: Answers) -> None:
    answers["gpu1"] = ["10.0.0.1"]
    answers["both"] = ["10.0.0.1", "10.0.0.2"]
    assert same("http://gpu1:81", "http://10.0.0.1:80", "http://gpu1:80/x", "https://gpu1:80", "http://both:80") == {}


def test_nothing_is_looked_up_where_nothing_can_be_the_same(answers: Answers) -> None:
    assert same("http://gpu1", "http://gpu2:81", "unix:/a", "unix:/b") == {}
    assert asyncio.run(Twins(["http://gpu1", "http://10.0.0.1:81"]).look()) == float("inf")


def test_a_name_without_an_answer_keeps_what_was_found(answers: Answers) -> None:
    answers["gpu1"] = ["10.0.0.1"]
    twins = Twins(["http://10.0.0.1", "http://gpu1"])
    asyncio.run(twins.look())
    answers["gpu1"] = SILENT
    asyncio.run(twins.look())
    assert twins.same == {"http://gpu1:80": "http://10.0.0.1:80"}
    answers["gpu1"] = ["10.0.0.2"]
    asyncio.run(twins.look())
    assert twins.same == {}


def test_a_first_name_without_an_answer_still_stands_for_its_address(answers: Answers) -> None:
    answers["gpu1"] = ["10.0.0.1"]
    twins = Twins(["http://gpu1", "http://10.0.0.1"])
    asyncio.run(twins.look())
    answers["gpu1"] = SILENT
    asyncio.run(twins.look())
    assert twins.same == {"http://10.0.0.1:80": "http://gpu1:80"}
