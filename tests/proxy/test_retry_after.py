"""What is read of a worker's Retry-After, and that its fault carries it."""

from __future__ import annotations

import time
from email.utils import formatdate

import pytest
from racing import racing
from tailrace.proxy.retry_after import asked_to_wait

pytestmark = pytest.mark.interpreted


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ([(b"retry-after", b"7")], 7.0),
        ([(b"retry-after", b" 0.5 ")], 0.5),
        ([(b"retry-after", b"7"), (b"retry-after-ms", b"1500")], 1.5),
        ([(b"x-other", b"7")], None),
        *[([(b"retry-after", told)], None) for told in (b"soon", b"-1", b"0", b"inf", b"nan", b"", b"\xff", b"1e300")],
        ([(b"retry-after", b"Wed, 21 Oct 2015 07:28:00 GMT")], None),
        ([(b"retry-after", b"Wed, 21 Oct 99999 07:28:00 GMT")], None),
        ([(b"retry-after", b"Wed, 32 Oct 2015 07:28:00 GMT")], None),
        ([(b"retry-after", b", , , ")], None),
    ],
)
def test_what_is_read(headers, seconds):
    assert asked_to_wait(headers) == seconds


def test_a_date_is_read():
    told = formatdate(time.time() + 100, usegmt=True).encode()
    seconds = asked_to_wait([(b"retry-after", told)])
    assert seconds is not None
    assert 90 < seconds <= 100


@racing
async def test_a_fault_carries_what_its_worker_said(course):
    for lines, seconds in (((b"retry-after: 3",), 3.0), ((), None)):
        c = course(workers="a").start()
        c.a.accept()
        c.a.status(503, b'{"error":{"message":"full"}}', *lines)
        assert c.fault.retry_after == seconds
        c.finish()
