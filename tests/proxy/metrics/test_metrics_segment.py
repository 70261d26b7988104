"""The shared memory: what a reader sees of a writer that goes on, dies, or was cut off in the middle."""

import os
import signal
import subprocess
import sys
import threading

import pytest
from tailrace.proxy.metrics import Segment
from tailrace.proxy.metrics.family import counter, gauge, histogram
from tailrace.proxy.metrics.register import Register
from tailrace.proxy.metrics.segment import SIZE, TABLE_AT

HITS = counter("test_hits_total", "Hits.", "where")
LEVEL = gauge("test_level", "Level.")
TIMES = histogram("test_seconds", "Times.", (0.1, 1.0))


def test_a_reader_sees_what_the_writer_counted(segment):
    register = Register(segment)
    segment.slots[register.series(HITS, ("a",))] += 2
    segment.slots[register.series(LEVEL, ())] = 1.5
    first = register.series(TIMES, ())
    segment.slots[first] += 0.5
    segment.slots[first + 2] += 1
    reader = Segment.attach(os.dup(segment.fd))
    reading = reader.read()
    assert reading["test_hits_total"] == (HITS, {("a",): [2.0]})
    assert reading["test_level"] == (LEVEL, {(): [1.5]})
    assert reading["test_seconds"] == (TIMES, {(): [0.5, 0.0, 1.0, 0.0]})
    reader.close()


def test_a_descriptor_that_is_no_segment_is_refused(tmp_path):
    for size in (0, SIZE):
        with open(tmp_path / "other", "w+b") as file:
            file.truncate(size)
            with pytest.raises(ValueError, match="no metrics segment"):
                Segment.attach(file.fileno())


def test_another_version_is_refused(segment):
    segment._words[1] += 1
    with pytest.raises(ValueError, match="version"):
        Segment.attach(segment.fd)


def test_a_segment_has_one_writer(segment):
    Register(segment)
    with pytest.raises(ValueError, match="writer"):
        Register(segment)


def test_without_memfd_an_unlinked_file_serves(monkeypatch):
    def forbidden(*_):
        raise PermissionError("memfd_create")

    monkeypatch.setattr(os, "memfd_create", forbidden)
    segment = Segment.create()
    assert os.fstat(segment.fd).st_nlink == 0
    other = Segment.attach(os.dup(segment.fd))
    segment.slots[5] = 7.0
    assert other.slots[5] == 7.0
    other.close()
    segment.close()


def test_counting_goes_on_after_the_descriptor_is_closed(segment):
    reader = Segment.attach(os.dup(segment.fd))
    segment.close_descriptor()
    segment.slots[5] += 1
    assert reader.slots[5] == 1
    reader.close()


WRITER = """
import os, signal, sys
from tailrace.proxy.metrics import Segment
from tailrace.proxy.metrics.family import counter
from tailrace.proxy.metrics.register import Register
segment = Segment.attach(int(sys.argv[1]))
slot = Register(segment).series(counter("test_hits_total", "Hits.", "where"), ("child",))
for _ in range(1000):
    segment.slots[slot] += 1
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_process_counted_is_there(segment):
    died = subprocess.run([sys.executable, "-c", WRITER, str(segment.fd)], pass_fds=[segment.fd], check=False)
    assert died.returncode == -signal.SIGKILL
    assert segment.read()["test_hits_total"][1] == {("child",): [1000.0]}


def test_half_a_record_is_not_believed(segment):
    register = Register(segment)
    register.series(HITS, ("whole",))
    end = segment.table_used
    register.series(HITS, ("torn",))
    segment._view[TABLE_AT + segment.table_used - 1] ^= 0xFF
    assert list(segment.read()["test_hits_total"][1]) == [("whole",)]
    segment._words[3] = end + 4
    assert list(segment.read()["test_hits_total"][1]) == [("whole",)]


def test_reading_while_the_writer_counts_and_adds_series(segment):
    register = Register(segment)
    reader = Segment.attach(os.dup(segment.fd))
    rounds = 300

    def write():
        for number in range(rounds):
            values = (str(number),)
            segment.slots[register.series(HITS, values)] += 1
            if number >= 10:
                register.retire(HITS, (str(number - 10),))
            if number % 25 == 24:
                register._drop_retired()

    thread = threading.Thread(target=write)
    thread.start()
    last = 0.0
    try:
        while thread.is_alive():
            if "test_hits_total" in (reading := reader.read()):
                counted = sum(slots[0] for slots in reading["test_hits_total"][1].values())
                assert last <= counted <= rounds
                last = counted
    finally:
        thread.join()
    assert sum(slots[0] for slots in reader.read()["test_hits_total"][1].values()) == rounds
    reader.close()


def test_a_writer_that_died_while_rewriting_does_not_hold_up_the_reader(segment):
    register = Register(segment)
    segment.slots[register.series(HITS, ("a",))] += 1
    segment._words[2] += 1
    assert segment.read()["test_hits_total"][1] == {("a",): [1.0]}
