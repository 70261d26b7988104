"""`tailrace ledger`: what an operator asks of a ledger, from the command line."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import sqlite3
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from tailrace.proxy.cli import main
from tailrace.proxy.ledger import segments
from tailrace.proxy.ledger.log import Log
from tailrace.proxy.ledger.record import Record
from tailrace.proxy.ledger.shipping import Shipper
from tailrace.proxy.ledger.sinks.sqlite import SqliteSink


def moment(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * 10**9


RECORDS = [
    Record(
        charge_key=f"c{number}",
        opened_ns=moment(time) - 10**9,
        settled_ns=moment(time),
        tenant=tenant,
        tags=tags,
        model="llama",
        service_class="batch",
        ending=ending,
        prompt=10,
        completion=number,
        amount=amount,
        currency=currency,
    )
    for number, (time, tenant, tags, ending, amount, currency) in enumerate(
        [
            ("2026-11-29T22:30:00", "acme", ("a", "b"), "completed", 1_500_000_000, "EUR"),
            ("2026-11-29T23:30:00", "acme", ("a",), "orphan", 1, "EUR"),
            ("2026-11-30T12:00:00", "acme", (), "completed", 9_007_199_254_740_993, "EUR"),
            ("2026-11-30T13:00:00", "=boss", (), "completed", 5, "USD"),
        ]
    )
]


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A state folder with a log, shipped, one of whose records stands there twice."""
    log = Log(tmp_path / "ledger", segment_bytes=900)
    for record in [*RECORDS, RECORDS[0]]:
        log.append([msgspec.json.encode(record)])
    shipper = Shipper(log, SqliteSink(tmp_path / "ledger.db"))
    shipper.ship()
    shipper.close()
    log.close()
    return tmp_path


def asked(capsys: pytest.CaptureFixture[str], state: Path, action: str, *more: str, code: int = 0) -> str:
    assert main(["ledger", action, "--state", str(state), *more]) == code
    return capsys.readouterr().out


def test_verify_tells_whole_from_changed(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "5 records in" in asked(capsys, state, "verify")
    last = segments.path_of(state / "ledger", segments.numbers(state / "ledger")[-1])
    last.write_bytes(last.read_bytes().replace(b'"amount":1500000000', b'"amount":1500000001'))
    told = asked(capsys, state, "verify", code=1)
    assert "faults" in told
    first = segments.path_of(state / "ledger", 1)
    first.unlink()
    assert "1: the segment is missing" in asked(capsys, state, "verify", code=1)


def test_verify_without_a_sink_says_what_it_cannot_tell(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (state / "ledger.db").unlink()
    assert "note: no sink was asked" in asked(capsys, state, "verify")


@pytest.mark.parametrize("source", [(), ("--from-sink",)])
def test_sums_are_exact_and_by_currency(
    state: Path, capsys: pytest.CaptureFixture[str], source: tuple[str, ...]
) -> None:
    rows = [json.loads(line) for line in asked(capsys, state, "sum", "--format", "jsonl", *source).splitlines()]
    assert [(row["currency"], row["calls"], row["amount"]) for row in rows] == [
        ("EUR", 3, "9007200.754740994"),
        ("USD", 1, "0.000000005"),
    ]
    assert (rows[0]["prompt"], rows[0]["orphans"]) == (30, 1)


def test_sums_by_tenant_and_day_of_a_zone(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = asked(capsys, state, "sum", "--by", "tenant,day", "--format", "csv", "--zone", "Europe/Berlin")
    rows = list(csv.DictReader(io.StringIO(told)))
    assert [(row["tenant"], row["day"], row["calls"]) for row in rows] == [
        ("=boss", "2026-11-30", "1"),
        ("acme", "2026-11-29", "1"),
        ("acme", "2026-11-30", "2"),
    ]


def test_sums_by_tag_count_a_record_under_each(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = asked(capsys, state, "sum", "--by", "tag")
    lines = [line.split() for line in told.splitlines()]
    assert lines[0][:3] == ["TAG", "CURRENCY", "CALLS"]
    assert [line[:3] for line in lines if line[0] in ("a", "b")] == [["a", "EUR", "2"], ["b", "EUR", "1"]]


def test_a_part_of_the_time(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = asked(capsys, state, "export", "--from", "2026-11-29T23:00", "--to", "2026-11-30T12:00")
    assert [json.loads(line)["charge_key"] for line in told.splitlines()] == ["c1"]
    told = asked(capsys, state, "export", "--from", "2026-11-30", "--zone", "Europe/Berlin")
    assert [json.loads(line)["charge_key"] for line in told.splitlines()] == ["c1", "c2", "c3"]


def test_an_export_as_json_lines_is_the_records(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = asked(capsys, state, "export").splitlines()
    assert [msgspec.json.decode(line, type=Record) for line in lines] == RECORDS


def test_an_export_as_csv(state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked(capsys, state, "export", "--format", "csv", "--out", str(tmp_path / "out.csv"))
    rows = list(csv.DictReader(io.StringIO((tmp_path / "out.csv").read_text())))
    assert [row["amount"] for row in rows] == [str(record.amount) for record in RECORDS]
    assert (rows[0]["tags"], rows[0]["class"], rows[0]["estimated"]) == ("a b", "batch", "0")
    assert rows[3]["tenant"] == "'=boss"


def test_an_export_as_parquet_or_a_clear_word(
    state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "out.parquet"
    if importlib.util.find_spec("pyarrow") is not None:
        asked(capsys, state, "export", "--format", "parquet", "--out", str(path))
        parquet = importlib.import_module("pyarrow.parquet")
        rows = parquet.read_table(path).to_pylist()
        assert [row["amount"] for row in rows] == [record.amount for record in RECORDS]
        assert rows[0]["tags"] == ["a", "b"]
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    assert main(["ledger", "export", "--state", str(state), "--format", "parquet"]) == 1
    assert "pip install 'tailrace[parquet]'" in capsys.readouterr().err


def test_replay_fills_a_sink_that_lost_its_records(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with sqlite3.connect(state / "ledger.db") as connection:
        connection.execute("delete from tailrace_ledger")
    connection.close()
    assert "all 5 records" in asked(capsys, state, "replay")
    assert len(asked(capsys, state, "export", "--from-sink").splitlines()) == 4


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["sum", "--by", "tenant,color"], "'color' is none of"),
        (["sum", "--from", "yesterday"], "'yesterday' is no date"),
        (["sum", "--zone", "Nowhere"], "'Nowhere' is no time zone"),
    ],
)
def test_wrong_arguments_are_told(
    state: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], told: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["ledger", *arguments, "--state", str(state)])
    assert ended.value.code == 2
    assert told in capsys.readouterr().err


def test_a_folder_without_a_ledger_and_a_sink_that_is_not_there(
    state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ledger", "verify", "--state", str(tmp_path / "none")]) == 1
    assert "there is no ledger in" in capsys.readouterr().err
    assert main(["ledger", "verify", "--state", str(state), "--sink", "postgresql://u:pw1@127.0.0.1:1/x"]) == 1
    told = capsys.readouterr().err
    assert told.startswith("tailrace: PostgreSQL: ") and "pw1" not in told
