"""What faults say to clients."""

from __future__ import annotations

import pytest
from tailrace.proxy.fault import overdue, timed_out


@pytest.mark.parametrize(("limit", "said"), [(2.00014, "2 s"), (0.25, "0.25 s"), (30.4996, "30.5 s"), (600.0, "600 s")])
def test_a_limit_is_told_as_people_write_it(limit: float, said: str) -> None:
    assert f"(first content limit of {said})" in timed_out("first_content", limit).message
    assert f"(total limit of {said})" in overdue(limit).message
