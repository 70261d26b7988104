"""Windows of limits, and a clock that does not jump."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from tailrace.plugins.quota.windows import FOREVER, Clock, Window, window_at


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("per", "zone", "now", "begins", "ends"),
    [
        ("second", "UTC", "2026-03-01T10:00:00.9", "2026-03-01T10:00:00", "2026-03-01T10:00:01"),
        ("minute", "UTC", "2026-03-01T10:00:59", "2026-03-01T10:00:00", "2026-03-01T10:01:00"),
        ("hour", "Asia/Kolkata", "2026-03-01T10:40:00", "2026-03-01T10:00:00", "2026-03-01T11:00:00"),
        ("day", "UTC", "2026-03-01T00:00:00", "2026-03-01T00:00:00", "2026-03-02T00:00:00"),
        ("day", "America/New_York", "2026-03-01T04:59:59", "2026-02-28T05:00:00", "2026-03-01T05:00:00"),
        # Days on which clocks are put forward and back have 23 and 25 hours.
        ("day", "Europe/Berlin", "2026-03-29T12:00:00", "2026-03-28T23:00:00", "2026-03-29T22:00:00"),
        ("day", "Europe/Berlin", "2026-10-25T12:00:00", "2026-10-24T22:00:00", "2026-10-25T23:00:00"),
        ("month", "Europe/Berlin", "2026-03-31T23:00:00", "2026-03-31T22:00:00", "2026-04-30T22:00:00"),
        ("month", "UTC", "2028-02-29T23:59:59", "2028-02-01T00:00:00", "2028-03-01T00:00:00"),
        ("month", "UTC", "2026-12-31T23:59:59", "2026-12-01T00:00:00", "2027-01-01T00:00:00"),
        # Midnight does not exist there on that day.
        ("day", "America/Santiago", "2026-09-06T12:00:00", "2026-09-06T04:00:00", "2026-09-07T03:00:00"),
    ],
)
def test_windows(per: str, zone: str, now: str, begins: str, ends: str) -> None:
    assert window_at(per, zone, at(now)) == Window(int(at(begins)), int(at(ends)))


def test_a_total_has_one_window() -> None:
    assert window_at("total", "UTC", 5.0) == Window(0, FOREVER)


@pytest.mark.parametrize("step", [3600.0, -3600.0, 11.0, -11.0])
def test_LIM_09_a_step_of_the_wall_clock_moves_nothing(step: float) -> None:
    now, wall = 100.0, 1_700_000_000.0
    clock = Clock(lambda: now, lambda: wall)
    wall += step
    now += 1.0
    assert clock.now() == 1_700_000_001.0


def test_LIM_09_hosts_that_differ_come_together_without_a_jump_or_a_step_back() -> None:
    now = 100.0
    ahead, behind = (Clock(lambda: now, lambda wall=wall: wall) for wall in (1_700_000_005.0, 1_700_000_000.0))
    seen = ahead.now()
    for _ in range(200):
        now += 1.0
        reference = 1_700_000_000.0 + now - 100.0
        for clock in (ahead, behind):
            clock.agree(reference)
        assert 0.9 < ahead.now() - seen < 1.1
        seen = ahead.now()
    assert abs(ahead.now() - behind.now()) < 0.001
