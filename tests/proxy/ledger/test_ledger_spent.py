"""What somebody has used, as a sink tells it by ledger."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from postgres import Postgres, postgres
from tailrace.proxy.ledger.record import Record
from tailrace.proxy.ledger.sinks import sink_of
from tailrace.proxy.ledger.sinks.sink import Sink, Spent


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with postgres() as running:
        yield running


@pytest.fixture(params=["sqlite", "postgres"])
def sink(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Sink]:
    url = request.getfixturevalue("server").url if request.param == "postgres" else None
    sink = sink_of(url, tmp_path)
    yield sink
    sink.close()


def record(number: int, key: str, opened: int, tags: tuple[str, ...] = ()) -> Record:
    return Record(
        charge_key=f"{key}-{number}",
        opened_ns=opened,
        settled_ns=opened + 100,
        key=key,
        tenant="t",
        model="m",
        tags=tags,
        amount=10**12 + number,
        prompt=3,
        completion=number,
    )


def test_sums_are_those_of_calls_that_began_within_the_time_and_stand_by_ledger(sink: Sink) -> None:
    first = [record(number, "a", 10 * number, ("red", "a-b")) for number in range(5)]
    sink.store("one", [*first, record(7, "b", 10, ("red%",))], None, None)
    sink.store("two", [record(9, "a", 20)], None, None)
    assert sink.spent("key", 10, 40) == {
        "a": {"one": Spent(3 * 10**12 + 6, 15, 3), "two": Spent(10**12 + 9, 12, 1)},
        "b": {"one": Spent(10**12 + 7, 10, 1)},
    }
    assert sink.spent("key", 1000, 2000) == {}
    by_tag = sink.spent("tag", 0, 2000)
    assert {tag: by_tag[tag]["one"].calls for tag in by_tag} == {"red": 5, "a-b": 5, "red%": 1}
    assert sink.spent("model", 0, 2000)["m"]["one"].calls == 6
    assert sink.spent("tenant", 0, 2000)["t"]["two"].amount == 10**12 + 9
    with pytest.raises(ValueError, match="added up"):
        sink.spent("worker", 0, 2000)
