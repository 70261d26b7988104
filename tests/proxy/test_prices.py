"""The file of prices: what it says for a model, a class and a day, and what is wrong in it, by line."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from tailrace.proxy import prices
from tailrace.proxy.config import ConfigError, parse, render
from tailrace.proxy.config.decode import decode_source

FILE = """\
currency: EUR
zone: Europe/Berlin
prices:
  - {model: llama, prompt: 0.50, cached_prompt: 0.05, completion: 1.50, until: 2027-01-01}
  - {model: llama, prompt: 0.60, completion: "1.80", from: 2027-01-01}
  - {model: llama, class: batch, prompt: 0.25, completion: 0.75, per_request: 0.0001,
     from: 2026-06-01, until: 2027-06-01}
  - {model: tiny, prompt: 0.000000001, from: 2026-06-01}
"""


def at(text: str, zone: str = "Europe/Berlin") -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()) * 10**9


@pytest.fixture
def table() -> prices.Prices:
    return prices.of_text(FILE, "prices.yaml")


@pytest.mark.parametrize(
    ("model", "service_class", "time", "rates"),
    [
        ("llama", "interactive", "2026-11-01", (500_000_000, 50_000_000, 1_500_000_000, 0)),
        ("llama", "", "2026-12-31T23:59:59", (500_000_000, 50_000_000, 1_500_000_000, 0)),
        ("llama", "", "2027-01-01", (600_000_000, 600_000_000, 1_800_000_000, 0)),
        ("llama", "batch", "2026-05-31T23:59:59", (500_000_000, 50_000_000, 1_500_000_000, 0)),
        ("llama", "batch", "2026-06-01", (250_000_000, 250_000_000, 750_000_000, 100_000)),
        ("llama", "batch", "2027-06-01", (600_000_000, 600_000_000, 1_800_000_000, 0)),
        ("tiny", "", "2026-06-01", (1, 1, 0, 0)),
        ("tiny", "", "2026-05-31T23:59:59", None),
        ("other", "", "2026-11-01", None),
        ("LLAMA", "", "2026-11-01", None),
    ],
)
def test_what_holds(
    table: prices.Prices, model: str, service_class: str, time: str, rates: tuple[int, ...] | None
) -> None:
    tariff = table.tariff(model, service_class, at(time))
    assert (None if tariff is None else tariff.rates) == rates
    assert tariff is None or (tariff.currency, tariff.version) == ("EUR", table.version)


def test_days_begin_in_the_zone_of_the_file(table: prices.Prices) -> None:
    assert table.tariff("tiny", "", at("2026-05-31T22:00", "UTC")) is not None
    assert table.tariff("tiny", "", at("2026-05-31T21:59", "UTC")) is None


def test_until_when_nothing_changes(table: prices.Prices) -> None:
    edges = [at("2026-06-01"), at("2027-01-01"), at("2027-06-01")]
    now = at("2026-01-01")
    for edge in edges:
        assert table.steady_until(now) == table.steady_until(edge - 1) == edge
        now = edge
    assert table.steady_until(now) > at("2200-01-01")


def test_models_with_a_price(table: prices.Prices) -> None:
    assert table.models() == {"llama", "tiny"}


def test_another_file_is_another_version(tmp_path: Path) -> None:
    first = prices.of_text(FILE, "p.yaml").version
    assert prices.of_text(FILE.replace("0.50", "0.51"), "p.yaml").version != first
    assert prices.of_text(FILE + "version: '2026-11'\n", "p.yaml").version == "2026-11"
    path = tmp_path / "p.yaml"
    path.write_text(FILE)
    assert prices.load(path).version == first


WRONG = {
    "currency: euro": "x.yaml:1: currency: must be a code of three letters such as EUR",
    "zone: Europe/Nowhere": "x.yaml:2: zone: expected a time zone",
    "{model: llama, prompt: -1}": "x.yaml:4: prices[0].prompt: expected an amount",
    "{model: llama, prompt: 1e3}": "x.yaml:4: prices[0].prompt: expected an amount",
    "{model: llama, prompt: 0.0000000001}": "x.yaml:4: prices[0].prompt: expected an amount",
    "{model: llama, prompt: 9300000000}": "x.yaml:4: prices[0].prompt: expected an amount",
    "{model: llama}": "x.yaml:4: prices[0]",
    "{model: llama, prompt: 1, completions: 2}": "x.yaml:4: prices[0]",
    "{model: llama, prompt: 1, from: 2026-02-30}": "x.yaml:4: prices[0].from: expected a date",
    "{model: llama, prompt: 1, from: 2026-02-02, until: 2026-02-02}": "x.yaml:4: prices[0].until: the prices end",
}


@pytest.mark.parametrize("wrong", WRONG)
def test_faults_bear_their_lines(wrong: str) -> None:
    lines = ["currency: EUR", "zone: UTC", "prices:", "  - {model: fine, prompt: 1}"]
    place = 0 if "currency" in wrong else 1 if "zone" in wrong else 3
    lines[place] = wrong if place < 2 else f"  - {wrong}"
    with pytest.raises(ConfigError) as told:
        prices.of_text("\n".join(lines), "x.yaml")
    assert str(told.value).startswith(WRONG[wrong])


@pytest.mark.parametrize(
    ("first", "second", "fine"),
    [
        ("until: 2026-05-05", "from: 2026-05-05", True),
        ("until: 2026-05-06", "from: 2026-05-05", False),
        ("class: a", "class: b", True),
        ("class: a", "completion: 1", True),
        ("class: a", "class: a", False),
        ("completion: 1", "completion: 2", False),
    ],
)
def test_there_is_one_price_at_a_time(first: str, second: str, fine: bool) -> None:
    text = f"currency: EUR\nprices:\n  - {{model: m, prompt: 1, {first}}}\n  - {{model: m, prompt: 1, {second}}}\n"
    if fine:
        prices.of_text(text, "x.yaml")
    else:
        with pytest.raises(ConfigError, match=r"x.yaml:4: prices\[1\]: another entry has prices for the same"):
            prices.of_text(text, "x.yaml")


def test_a_file_is_written_back_as_it_was_read() -> None:
    file = decode_source(prices.PricesFile, parse(FILE, "x.yaml"))
    again = decode_source(prices.PricesFile, parse(render(file), "x.yaml"))
    assert again == file
