"""Whether a ledger is what was written: every record, in its order, unchanged, none missing at either end.

Whoever can write to the folder could compute the hashes of a changed log anew. The heads that the sink has sealed show
that, as long as the sink is not in the same hands: PostgreSQL on another machine, not SQLite in the same folder.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tailrace.proxy.ledger import segments
from tailrace.proxy.ledger.chain import GENESIS, Header, begin, header_of, line_of


@dataclass(frozen=True, slots=True)
class Seal:
    """What a sink holds of a segment: how far it had come when its records were shipped last."""

    records: int
    hash: str
    dropped: bool = False
    """Whether it was deleted since, after its records had been kept long enough."""


Seals = Mapping[int, Seal]


@dataclass(slots=True)
class Findings:
    """What is wrong, each with segment:record; and what is worth knowing."""

    faults: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    segments: int = 0
    records: int = 0


@dataclass(slots=True)
class _Chain:
    """Where the chain stands between two segments."""

    segment: int
    records: int
    hash: str


def verify(folder: Path, seals: Seals | None) -> Findings:
    """Read the whole log; `seals` are the sink's, None where none can be asked."""
    findings = Findings()
    present = segments.numbers(folder)
    before: _Chain | None = None
    for segment in present:
        findings.faults += _gap(before, segment, seals or {})
        before = _check(folder, segment, before, seals or {}, findings, last=segment == present[-1])
    for segment, seal in sorted((seals or {}).items()):
        if segment not in present and not seal.dropped and (not present or segment > present[-1]):
            findings.faults.append(f"{segment}: the segment is missing; the sink has {seal.records} records of it")
    if seals is None:
        findings.notes.append("no sink was asked: a tail that was cut off cannot be told from one never written")
    return findings


def _gap(before: _Chain | None, segment: int, seals: Seals) -> Iterator[str]:
    """The segments that should stand before one."""
    first = 1 if before is None else before.segment + 1
    for missing in range(first, segment):
        seal = seals.get(missing)
        if seal is None or not seal.dropped:
            yield f"{missing}: the segment is missing"


def _check(
    folder: Path, segment: int, before: _Chain | None, seals: Seals, findings: Findings, *, last: bool
) -> _Chain:
    """One segment; how far its own chain goes."""
    content = segments.path_of(folder, segment).read_bytes()
    first, _, _ = content.partition(b"\n")
    header = header_of(first)
    findings.segments += 1
    if header is None:
        findings.faults.append(f"{segment}:0: the header cannot be read")
    else:
        findings.faults += _joint(header, segment, before, seals)
    torn_at = None
    if last and header is not None:
        reached = segments.reach(content)
        if reached.torn and not reached.whole:
            torn_at = reached.end
            findings.notes.append(
                f"{segment}:{reached.records + 1}: a torn end of {reached.size - reached.end} bytes, "
                "as a power cut leaves it; the next start cuts it off"
            )
    chain = _Chain(segment, 0, begin(first))
    body = content[len(first) + 1 : torn_at]
    findings.faults += _records(body, chain, seals.get(segment))
    findings.records += chain.records
    return chain


def _joint(header: Header, segment: int, before: _Chain | None, seals: Seals) -> Iterator[str]:
    """Whether a segment's header agrees with the one before."""
    if header.segment != segment:
        yield f"{segment}:0: the header is that of segment {header.segment}"
    if before is not None and before.segment == segment - 1:
        if header.records > before.records:
            yield (
                f"{before.segment}:{before.records + 1}: the end is missing: "
                f"the next segment counts {header.records} records, {before.records} are there"
            )
        elif (header.records, header.previous) != (before.records, before.hash):
            yield f"{before.segment}:{before.records}: the end is not the one that the next segment was begun behind"
    elif segment == 1:
        if header.previous != GENESIS:
            yield "1:0: the header does not begin a ledger"
    elif (seal := seals.get(segment - 1)) is not None and (seal.records, seal.hash) != (
        header.records,
        header.previous,
    ):
        yield f"{segment}:0: the header does not follow the end of segment {segment - 1} that the sink has sealed"


def _records(body: bytes, chain: _Chain, seal: Seal | None) -> Iterator[str]:
    """Follow a segment's records; each fault is told once, and the chain taken up behind it."""
    segment = chain.segment
    for text in body.split(b"\n")[:-1] if body.endswith(b"\n") else body.split(b"\n"):
        if not body:
            break
        expected = chain.records + 1
        line = line_of(text)
        if line is None:
            yield f"{segment}:{expected}: this is no record"
            chain.records = expected
            continue
        if line.number > expected:
            yield f"{segment}:{expected}: {_missing(expected, line.number - 1)}"
        elif line.number < expected:
            yield f"{segment}:{line.number}: the record stands behind record {chain.records}: out of order, or twice"
            continue
        elif not line.follows(chain.hash):
            yield f"{segment}:{expected}: the record was changed, or the one before it"
        chain.records, chain.hash = line.number, line.hash
        if seal is not None and seal.records == line.number and seal.hash != line.hash:
            yield f"{segment}:{line.number}: the chain is not the one that the sink has sealed"
    if seal is not None and seal.records > chain.records:
        yield (
            f"{segment}:{chain.records + 1}: the end was cut off: "
            f"the sink has sealed {seal.records} records, {chain.records} are there"
        )


def _missing(first: int, last: int) -> str:
    return "the record is missing" if first == last else f"records {first} to {last} are missing"
