"""Kept answers as bytes, and on a shelf that has an end."""

from __future__ import annotations

import gc

import pytest
from tailrace.proxy.stored.answer import Answer, packed, unpacked
from tailrace.proxy.stored.shelf import Shelf

NOW = 1000.0


def made(body: bytes = b"x", check: bytes = b"c", until: float = NOW + 60) -> Answer:
    return Answer(body, check, NOW, until, "=t", "m", "chat", 3, 2, 1)


def shelf(limit: int = 1 << 20) -> Shelf:
    return Shelf(limit, now=lambda: NOW)


def test_bytes_and_back() -> None:
    assert unpacked(packed(made())) == made()
    assert made().usage == unpacked(packed(made())).usage  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "damaged",
    [b"", b"tr0:" + packed(made())[4:], b"x" + packed(made()), packed(made())[:-1], packed(made())[:4], b"tr1:\x01"],
)
def test_another_version_and_what_is_damaged_are_nothing(damaged: bytes) -> None:
    assert unpacked(damaged) is None


def test_an_answer_to_another_request_is_not_given() -> None:
    kept = shelf()
    kept.put(b"k", made(check=b"one"))
    assert kept.get(b"k", b"two") is None
    assert kept.get(b"k", b"one") is not None


def test_what_is_out_of_date_is_given_only_to_those_who_take_it() -> None:
    kept = shelf()
    kept.put(b"k", made(until=NOW - 10))
    assert kept.get(b"k", b"c") is None
    assert kept.get(b"k", b"c", late=5) is None
    assert kept.get(b"k", b"c", late=15) is not None


def test_the_longest_unused_goes_first() -> None:
    one = made().size
    kept = shelf(3 * one)
    for key in (b"a", b"b", b"c"):
        kept.put(key, made())
    kept.get(b"a", b"c")
    kept.put(b"d", made())
    assert kept.keys() == [b"c", b"a", b"d"]
    assert (kept.size, kept.evicted) == (3 * one, 1)
    kept.put(b"a", made(b"y" * 10))
    assert kept.size <= 3 * one
    kept.resize(one)
    assert len(kept) <= 1


def test_what_is_larger_than_the_shelf_is_not_kept() -> None:
    kept = shelf(500)
    kept.put(b"k", made())
    kept.put(b"k", made(b"y" * 1000))
    assert (len(kept), kept.size) == (0, 0)


def test_the_collector_does_not_see_answers() -> None:
    assert not gc.is_tracked(made())
