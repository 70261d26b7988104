"""Names that an identity allows, limits as people write them, and money that never is a float."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tailrace.proxy import money
from tailrace.proxy.config import ConfigError, decode_as, parse
from tailrace.proxy.config.flaws import Flaws
from tailrace.proxy.identity import allows
from tailrace.proxy.limit import Limit


@pytest.mark.parametrize(
    ("names", "name", "said"),
    [
        (None, "anything", True),
        ((), "m", False),
        (("m",), "m", True),
        (("m",), "m2", False),
        (("llama-*",), "llama-8b", True),
        (("a[b]?*",), "a[b]?c", True),
        (("a[b]?*",), "abxc", False),
    ],
)
def test_names_that_are_allowed(names, name, said):
    assert allows(names, name) is said


@given(st.integers(min_value=0, max_value=10**21 - 1))
def test_money_is_read_as_it_is_written(nano):
    assert money.parse(money.render(nano)) == nano


@pytest.mark.parametrize(("text", "nano"), [("12.50", 12_500_000_000), ("0.000000001", 1), ("7", 7 * 10**9)])
def test_amounts(text, nano):
    assert money.parse(text) == nano


@pytest.mark.parametrize("text", ["", "-1", "1e3", "1.", ".5", "1.0000000001", "NaN", "٣", " 1"])
def test_what_is_no_amount(text):
    with pytest.raises(ValueError, match="amount"):
        money.parse(text)


def limits_of(text, flaws):
    node = parse(f"limits: [{text}]", "limits.yaml").root.get("limits")
    assert node is not None
    return decode_as(tuple[Limit, ...], node, flaws)


LIMITS = {
    "{requests: 100, per: minute}": Limit("requests", 100, "minute"),
    "{tokens: 5, per: day, of: tenant}": Limit("tokens", 5, "day", of="tenant"),
    "{money: 0.00001, per: day}": Limit("money", 10_000, "day"),
    '{money: "12.50", per: month, zone: Europe/Berlin}': Limit("money", 12_500_000_000, "month", "Europe/Berlin"),
    "{money: 0.1, per: day}": Limit("money", 100_000_000, "day"),
    "{concurrent_requests: 4}": Limit("concurrent_requests", 4, None),
}


@pytest.mark.parametrize(("text", "limit"), LIMITS.items())
def test_limits_read_and_written_back(text, limit):
    flaws = Flaws()
    assert limits_of(text, flaws) == (limit,)
    flaws.raise_if_any()
    assert Limit.of_plain(limit.to_plain()) == limit


BAD = {
    "{}": "names one thing",
    "{requests: 1, tokens: 2, per: day}": "names one thing",
    "{request: 1, per: day}": "unknown key 'request'",
    "{requests: 1}": "`per` of 'requests' must be one of second",
    "{money: 1, per: minute}": "day, month, total",
    "{concurrent_requests: 1, per: day}": "it has no `per`",
    "{requests: -1, per: day}": "from 0",
    "{requests: 1.5, per: day}": "whole number",
    "{requests: true, per: day}": "whole number",
    "{money: lots, per: day}": "amount",
    "{requests: 1, per: day, zone: Mars/Base}": "time zone",
    "{requests: 1, per: day, zone: /etc/passwd}": "time zone",
    "{requests: 1, per: day, of: planet}": "`of` must be",
    "[1]": "a limit is a mapping",
}


@pytest.mark.parametrize(("text", "fault"), BAD.items())
def test_limits_that_are_none(text, fault):
    flaws = Flaws()
    assert limits_of(text, flaws) is None
    with pytest.raises(ConfigError, match=fault) as error:
        flaws.raise_if_any()
    assert "limits.yaml:1" in str(error.value)
