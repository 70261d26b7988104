"""Records in forms that other programs read: CSV, JSON lines, Parquet. Money stays whole nano-units."""

from __future__ import annotations

import csv
import importlib
import io
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, BinaryIO

import msgspec
from tailrace.proxy.ledger.record import Record

_ROWS = 10_000


class CannotExport(Exception):  # noqa: N818 - a fact about this installation
    """A form that needs what is not installed."""


FIELDS = tuple(field.encode_name for field in msgspec.structs.fields(Record))


def as_jsonl(records: Iterable[Record], out: BinaryIO) -> int:
    """A line of JSON for each record."""
    encode = msgspec.json.Encoder().encode
    count = 0
    for record in records:
        out.write(encode(record) + b"\n")
        count += 1
    return count


def as_csv(records: Iterable[Record], out: BinaryIO) -> int:
    """RFC 4180, with a line of names; tags stand in one field, spaces between them."""
    text = io.TextIOWrapper(out, encoding="utf-8", newline="", write_through=True)
    writer = csv.writer(text)
    writer.writerow(FIELDS)
    count = 0
    for record in records:
        plain = msgspec.to_builtins(record)
        plain["tags"] = " ".join(record.tags)
        writer.writerow([_safe(plain[name]) for name in FIELDS])
        count += 1
    text.detach()
    return count


def _safe(value: Any) -> Any:
    """A client chose some of these words: a spreadsheet must not take one for a formula."""
    if isinstance(value, bool):
        return int(value)
    return "'" + value if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value


def as_parquet(records: Iterable[Record], out: BinaryIO) -> int:
    """An Apache Parquet file; raises CannotExport where pyarrow is not installed."""
    try:
        pyarrow: Any = importlib.import_module("pyarrow")
        parquet: Any = importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise CannotExport("Parquet needs the extra `parquet`: pip install 'tailrace[parquet]'") from error
    kinds = {int: pyarrow.int64(), bool: pyarrow.bool_(), str: pyarrow.string()}
    schema = pyarrow.schema(
        [
            (field.encode_name, kinds.get(field.type, pyarrow.list_(pyarrow.string())))
            for field in msgspec.structs.fields(Record)
        ]
    )
    count = 0
    with parquet.ParquetWriter(out, schema) as writer:
        for rows in _batches(records):
            writer.write_table(pyarrow.Table.from_pylist([msgspec.to_builtins(row) for row in rows], schema=schema))
            count += len(rows)
    return count


def _batches(records: Iterable[Record]) -> Iterator[list[Record]]:
    source = iter(records)
    while rows := list(islice(source, _ROWS)):
        yield rows


FORMS: dict[str, Callable[[Iterable[Record], BinaryIO], int]] = {
    "csv": as_csv,
    "jsonl": as_jsonl,
    "parquet": as_parquet,
}
