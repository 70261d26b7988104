"""`tailrace ledger`: prove that the ledger is whole, sum it, export it, give it to its sink once more."""

from __future__ import annotations

import argparse
import csv
import json
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import BinaryIO
from zoneinfo import ZoneInfo

from tailrace.proxy import money
from tailrace.proxy.ledger import segments
from tailrace.proxy.ledger.export import FORMS, CannotExport
from tailrace.proxy.ledger.record import Record
from tailrace.proxy.ledger.shipping import replay
from tailrace.proxy.ledger.sinks import sink_of
from tailrace.proxy.ledger.sinks.sink import Down, Sink
from tailrace.proxy.ledger.sinks.sqlite import NAME as SQLITE
from tailrace.proxy.ledger.sums import WAYS, in_log, summed
from tailrace.proxy.ledger.totals import Sum
from tailrace.proxy.ledger.verify import Seals, verify
from tailrace.proxy.supervisor import Fatal

NAME = "ledger"
HELP = "verify, sum and export what calls used and cost"
SINK = "TAILRACE_LEDGER_SINK"
_EVER = 2**63 - 1
_MONEY = ("amount", "lost_amount")


def describe(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    place = argparse.ArgumentParser(add_help=False)
    place.add_argument("--state", metavar="DIR", type=Path, required=True, help="the gateway's state folder")
    place.add_argument(
        "--sink",
        metavar="URL",
        default=None,
        help=f"a postgresql:// URL (default: ${SINK}, else {SQLITE} in the state folder)",
    )
    part = argparse.ArgumentParser(add_help=False)
    part.add_argument("--from", dest="first", metavar="TIME", type=_time, help="settled at this date or time or later")
    part.add_argument("--to", dest="end", metavar="TIME", type=_time, help="settled before this date or time")
    part.add_argument("--zone", type=_zone, default=ZoneInfo("UTC"), help="of dates and days (default: UTC)")
    part.add_argument("--from-sink", action="store_true", help="ask the sink, which keeps what the log has let go")
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True, dest="action")
    actions.add_parser("verify", parents=[place], help="find what was changed, removed, reordered or cut off")
    sums = actions.add_parser("sum", parents=[place, part], help="add up calls, tokens and amounts")
    sums.add_argument("--by", metavar="WAYS", type=_ways, default=(), help=f"such as tenant,day; of: {', '.join(WAYS)}")
    sums.add_argument("--format", choices=("table", "csv", "jsonl"), default="table")
    export = actions.add_parser("export", parents=[place, part], help="write the records out")
    export.add_argument("--format", choices=tuple(FORMS), default="jsonl")
    export.add_argument("--out", metavar="FILE", type=Path, default=None, help="default: standard output")
    actions.add_parser("replay", parents=[place], help="give the sink all records of the log that it has not")


def run(options: argparse.Namespace) -> int:
    """Do it; 1 where the ledger is not whole."""
    folder = options.state / segments.FOLDER
    if not segments.numbers(folder):
        raise Fatal(f"there is no ledger in {folder}")
    try:
        return {"verify": _verify, "sum": _sum, "export": _export, "replay": _replay}[options.action](options, folder)
    except (Down, CannotExport) as error:
        raise Fatal(str(error)) from None
    except OSError as error:
        raise Fatal(f"{error.filename or folder}: {error.strerror or error}") from None


def _verify(options: argparse.Namespace, folder: Path) -> int:
    findings = verify(folder, _seals(options, folder))
    for fault in findings.faults:
        print(fault)
    for note in findings.notes:
        print(f"note: {note}")
    print(
        f"{findings.records} records in {findings.segments} segments: "
        + (f"{len(findings.faults)} faults" if findings.faults else "whole")
    )
    return 1 if findings.faults else 0


def _seals(options: argparse.Namespace, folder: Path) -> Seals | None:
    if _url(options) is None and not (options.state / SQLITE).exists():
        return None
    with _sink(options, read_only=True) as sink:
        return sink.seals(segments.name_of(folder))


def _sum(options: argparse.Namespace, folder: Path) -> int:
    with _records(options, folder) as records:
        sums = summed(records, options.by, options.zone)
    names = (*options.by, "currency")
    fields = tuple(asdict(Sum()))
    rows = [(*group, *_shown(total)) for group, total in sums.items()]
    if options.format == "jsonl":
        for row in rows:
            print(json.dumps(dict(zip((*names, *fields), row, strict=True)), ensure_ascii=False))
    elif options.format == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerows([(*names, *fields), *rows])
    else:
        texts = [tuple(name.upper() for name in (*names, *fields)), *(tuple(map(str, row)) for row in rows)]
        widths = [max(len(text[column]) for text in texts) for column in range(len(texts[0]))]
        print("\n".join("  ".join(map(str.ljust, text, widths)).rstrip() for text in texts))
    return 0


def _shown(total: Sum) -> list[int | str]:
    """Amounts as people write them: JSON's numbers are floats to many readers."""
    return [money.render(value) if name in _MONEY else value for name, value in asdict(total).items()]


def _export(options: argparse.Namespace, folder: Path) -> int:
    with _records(options, folder) as records, _out(options.out) as out:
        count = FORMS[options.format](records, out)
        out.flush()
    print(f"{count} records", file=sys.stderr)
    return 0


def _replay(options: argparse.Namespace, folder: Path) -> int:
    with _sink(options, read_only=False) as sink:
        count, records = replay(folder, sink)
    print(f"the sink has all {records} records of {count} segments")
    return 0


@contextmanager
def _records(options: argparse.Namespace, folder: Path) -> Iterator[Iterable[Record]]:
    first = -_EVER if options.first is None else _nanoseconds(options.first, options.zone)
    end = _EVER if options.end is None else _nanoseconds(options.end, options.zone)
    if options.from_sink:
        with _sink(options, read_only=True) as sink:
            yield sink.records(first, end)
        return
    earliest = segments.numbers(folder)[0]
    if earliest > 1:
        print(f"note: the log begins at segment {earliest}; --from-sink has what was before", file=sys.stderr)
    yield in_log(folder, first, end)


@contextmanager
def _sink(options: argparse.Namespace, *, read_only: bool) -> Iterator[Sink]:
    sink = sink_of(_url(options), options.state, read_only=read_only)
    try:
        yield sink
    finally:
        sink.close()


@contextmanager
def _out(path: Path | None) -> Iterator[BinaryIO]:
    if path is None:
        yield sys.stdout.buffer
    else:
        with path.open("wb") as file:
            yield file


def _url(options: argparse.Namespace) -> str | None:
    found: str | None = options.sink or os.environ.get(SINK)
    return found


def _ways(text: str) -> tuple[str, ...]:
    ways = tuple(text.split(","))
    if unknown := [way for way in ways if way not in WAYS]:
        raise argparse.ArgumentTypeError(f"'{unknown[0]}' is none of {', '.join(WAYS)}")
    return ways


def _time(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is no date or time such as 2027-01-31T12:00") from None


def _zone(text: str) -> ZoneInfo:
    try:
        return ZoneInfo(text)
    except (OSError, LookupError, ValueError):
        raise argparse.ArgumentTypeError(f"'{text}' is no time zone such as Europe/Berlin") from None


def _nanoseconds(time: datetime, zone: ZoneInfo) -> int:
    return int((time if time.tzinfo else time.replace(tzinfo=zone)).timestamp() * 10**6) * 1000
