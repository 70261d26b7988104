"""The log's chain: whatever is done to it is found, and where; a power cut is told from damage."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ledgers import PowerCut, log_in
from tailrace.proxy.ledger import segments
from tailrace.proxy.ledger.log import Log
from tailrace.proxy.ledger.verify import Seal, verify

PER_SEGMENT = 4


def text_of(number: int) -> bytes:
    return b'{"charge_key":"k%d","opened_ns":1,"settled_ns":%d,"amount":%d}' % (number, number, number)


def written(folder: Path, records: int = 12, batch: int = 1) -> dict[int, Seal]:
    """A log of several segments, and the heads that a sink would have sealed."""
    log = Log(folder, segment_bytes=600)
    seals = {}
    for number in range(0, records, batch):
        log.append([text_of(each) for each in range(number, min(number + batch, records))])
        head = log.head
        seals[head.segment] = Seal(head.records, head.hash)
    log.close()
    return seals


def lines(folder: Path, segment: int) -> list[bytes]:
    return segments.path_of(folder, segment).read_bytes().splitlines(keepends=True)


def put(folder: Path, segment: int, content: list[bytes]) -> None:
    segments.path_of(folder, segment).write_bytes(b"".join(content))


def test_a_log_is_whole_with_and_without_its_seals(tmp_path: Path) -> None:
    seals = written(tmp_path)
    assert len(seals) >= 3
    assert verify(tmp_path, seals).faults == []
    found = verify(tmp_path, None)
    assert (found.faults, found.records, found.segments) == ([], 12, len(seals))
    assert len(found.notes) == 1


Tampering = Callable[[list[bytes]], list[bytes]]
TAMPERED: dict[str, tuple[Tampering, str]] = {
    "an amount": (
        lambda ls: [*ls[:2], ls[2].replace(b'"amount":', b'"amount":9'), *ls[3:]],
        "2:2: the record was changed",
    ),
    "a hash": (lambda ls: [*ls[:2], b"0" * 64 + ls[2][64:], *ls[3:]], "2:2: the record was changed"),
    "one removed": (lambda ls: [*ls[:2], *ls[3:]], "2:2: the record is missing"),
    "two exchanged": (lambda ls: [ls[0], ls[2], ls[1], *ls[3:]], "2:1: the record is missing"),
    "one twice": (lambda ls: [*ls[:3], ls[2], *ls[3:]], "2:2: the record stands behind record 2: out of order"),
    "one that is none": (lambda ls: [*ls[:2], b"something\n", *ls[3:]], "2:2: this is no record"),
    "the end cut": (lambda ls: ls[:-1], "the end is missing: the next segment counts"),
    "the header": (lambda ls: [ls[0].replace(b'"segment":2', b'"segment":3'), *ls[1:]], "2:0: the header is that of"),
    "no header": (lambda ls: [b"{}\n", *ls[1:]], "2:0: the header cannot be read"),
}


@pytest.mark.parametrize("case", TAMPERED)
@pytest.mark.parametrize("sealed", [False, True])
def test_what_was_done_to_a_closed_segment_is_found_with_its_place(tmp_path: Path, case: str, sealed: bool) -> None:
    seals = written(tmp_path)
    tamper, told = TAMPERED[case]
    put(tmp_path, 2, tamper(lines(tmp_path, 2)))
    faults = verify(tmp_path, seals if sealed else None).faults
    assert any(told in fault for fault in faults), faults
    assert all(fault.startswith(("2:", "3:0")) for fault in faults)


@given(segment=st.integers(1, 3), place=st.floats(0, 1, exclude_max=True), change=st.integers(1, 255))
def test_a_changed_byte_anywhere_is_found(
    tmp_path_factory: pytest.TempPathFactory, segment: int, place: float, change: int
) -> None:
    folder = tmp_path_factory.mktemp("log")
    seals = written(folder)
    path = segments.path_of(folder, segment)
    content = bytearray(path.read_bytes())
    content[int(place * len(content))] ^= change
    path.write_bytes(content)
    found = verify(folder, seals)
    assert found.faults


def test_a_removed_segment_is_found(tmp_path: Path) -> None:
    seals = written(tmp_path)
    for segment in (1, 2, max(seals)):
        folder = tmp_path / f"without-{segment}"
        folder.mkdir()
        for path in tmp_path.glob("*.log"):
            if path != segments.path_of(tmp_path, segment):
                (folder / path.name).write_bytes(path.read_bytes())
        assert f"{segment}: the segment is missing" in verify(folder, seals).faults[0]


def test_a_segment_that_was_let_go_is_not_missing(tmp_path: Path) -> None:
    seals = written(tmp_path)
    segments.path_of(tmp_path, 1).unlink()
    seals[1] = Seal(seals[1].records, seals[1].hash, dropped=True)
    assert verify(tmp_path, seals).faults == []
    seals[1] = Seal(seals[1].records, "f" * 64, dropped=True)
    assert "2:0: the header does not follow" in verify(tmp_path, seals).faults[0]


@pytest.mark.parametrize("cut", [1, 5, 10_000])
def test_a_tail_that_was_cut_off_is_found_by_the_sealed_head(tmp_path: Path, cut: int) -> None:
    seals = written(tmp_path, records=11)
    last = max(seals)
    kept = lines(tmp_path, last)
    put(tmp_path, last, kept[:1] if cut == 10_000 else [*kept[:-1], kept[-1][:-cut]])
    assert any("the end was cut off: the sink has sealed" in fault for fault in verify(tmp_path, seals).faults)
    log_in(tmp_path).close()  # a start cuts what is torn, which does not make it whole
    assert any("the end was cut off: the sink has sealed" in fault for fault in verify(tmp_path, seals).faults)


@pytest.mark.parametrize("cut", [1, 40, 100])
def test_a_torn_last_record_is_told_and_no_fault(tmp_path: Path, cut: int) -> None:
    written(tmp_path, records=3)
    path = segments.path_of(tmp_path, 1)
    path.write_bytes(path.read_bytes()[:-cut])
    found = verify(tmp_path, None)
    assert (found.faults, found.records) == ([], 2)
    assert found.notes[0].startswith("1:3: a torn end of ")
    log = log_in(tmp_path)
    assert (log.torn > 0, log.head.records) == (True, 2)
    log.close()
    assert len(verify(tmp_path, None).notes) == 1


def test_a_chain_computed_anew_is_found_by_the_sealed_heads(tmp_path: Path) -> None:
    seals = written(tmp_path / "true")
    log = Log(tmp_path / "forged", segment_bytes=600)
    for number in range(12):
        log.append([text_of(number).replace(b'"amount":5', b'"amount":0')])
    log.close()
    assert verify(tmp_path / "forged", None).faults == []
    assert verify(tmp_path / "forged", seals).faults


TAILS: dict[str, Callable[[bytes, bytes], bytes]] = {
    "nothing of it": lambda kept, lost: kept,
    "a part of it": lambda kept, lost: kept + lost[: len(lost) // 2],
    "all but a byte": lambda kept, lost: kept + lost[:-1],
    "room without content": lambda kept, lost: kept + bytes(len(lost)),
    "a hole in front": lambda kept, lost: kept + bytes(len(lost) // 3) + lost[len(lost) // 3 :],
    "a hole in the middle": lambda kept, lost: kept + lost[:200] + bytes(300) + lost[500:],
}


@pytest.mark.parametrize("case", TAILS)
def test_a_power_cut_takes_no_record_that_was_durable(tmp_path: Path, case: str) -> None:
    disk = PowerCut()
    (tmp_path / "before").mkdir()
    (tmp_path / "after").mkdir()
    log = Log(tmp_path / "before", segment_bytes=3000, disk=disk)
    durable = 0
    for _ in range(7):
        log.append([text_of(durable + each) for each in range(6)])
        durable += 6
    disk.sync = lambda fd: None  # type: ignore[method-assign]  # the power goes before this one is through
    log.append([text_of(durable + each) for each in range(9)])
    disk.after(tmp_path / "after", TAILS[case])
    again = Log(tmp_path / "after", segment_bytes=3000)
    assert again.damaged == ""
    assert (again.torn > 0) == (case != "nothing of it")
    again.append([text_of(1000)])
    again.close()
    found = verify(tmp_path / "after", None)
    assert found.faults == []
    assert found.records >= durable + 1


def test_damage_before_the_last_batch_is_not_taken_for_a_torn_end(tmp_path: Path) -> None:
    written(tmp_path, records=3)
    put(tmp_path, 1, [*lines(tmp_path, 1)[:1], b"\0" * 40 + b"\n", *lines(tmp_path, 1)[2:]])
    before = segments.path_of(tmp_path, 1).read_bytes()
    log = log_in(tmp_path)
    assert "segment 1 is damaged behind record 0" in log.damaged
    log.append([text_of(77)])
    assert log.head.segment == 2
    log.close()
    assert segments.path_of(tmp_path, 1).read_bytes() == before
    assert verify(tmp_path, None).faults == [
        "1:1: this is no record",
        "1:2: the record was changed, or the one before it",
    ]


def test_a_record_removed_before_the_last_batch_is_not_taken_for_a_torn_end(tmp_path: Path) -> None:
    written(tmp_path, records=3)
    before = lines(tmp_path, 1)
    put(tmp_path, 1, [*before[:2], *before[3:]])
    log = log_in(tmp_path)
    assert "segment 1 is damaged behind record 1" in log.damaged
    log.append([text_of(77)])
    log.close()
    assert verify(tmp_path, None).faults == ["1:2: the record is missing"]


def test_segments_are_closed_by_age(tmp_path: Path) -> None:
    log = Log(tmp_path, segment_seconds=0.0)
    for number in range(3):
        log.append([text_of(number)])
    log.close_if_due()
    log.close_if_due()
    log.close()
    assert segments.numbers(tmp_path) == [1, 2, 3, 4]
    assert verify(tmp_path, None).faults == []
