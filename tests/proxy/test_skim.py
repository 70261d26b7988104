"""Long bodies judged at once: what is found must be what the exact reading finds."""

import json
import random
from typing import Any

import pytest
from tailrace.proxy.body import JsonBody
from tailrace.proxy.fault import Reject
from tailrace.proxy.skim import LATER, LONGEST, MOST, SHORTEST, skim

TEXT = "wörter 敏捷 " * 2000


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("true", True),
        ("null", None),
        ("7", 7),
        ("-0", 0),
        ('"a\\u00e9b"', "aéb"),
        ("0.7", LATER),
        ('{"a":1}', LATER),
        ("[]", LATER),
    ],
)
def test_short_values_are_found_at_once(value: str, found: Any) -> None:
    assert skim(f'{{"x":{value},"messages":"{TEXT}"}}'.encode()) == {"x": found, "messages": LATER}


@pytest.mark.parametrize(
    "raw",
    [
        b"[1]",
        b' {"a":1}',
        b'\xef\xbb\xbf{"a":1}',
        b'{"a":1,"a":1}',
        b'{"a":1,"a\\u0000b":2}',
        b'{"a":1,"\\u0061":2}',
        b'{"a":123456789012345678901234567890}',
        b'{"a":1e999}',
        b'{"a":"\\ud800"}',
        b'{"a":"\xff"}',
        b'{"a":"\xed\xa0\x80"}',
        b'{"a":"\x01"}',
        b'{"a":1}x',
        b'{"a":1',
        b"{" + b'"a":{' * 2000 + b"}" * 2001,
        b'{"a":"' + b"x" * LONGEST + b'"}',
    ],
)
def test_what_it_cannot_decide_is_left_to_the_exact_reading(raw: bytes) -> None:
    assert skim(raw) is None


def test_a_large_number_reaches_the_worker_as_it_was_written() -> None:
    raw = b'{"seed":123456789012345678901234567890,"messages":"' + TEXT.encode() + b'"}'
    body = JsonBody(raw, 9)
    assert bytes(body.written("seed") or b"") == b"123456789012345678901234567890"
    assert body.render() is raw


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "utf-16-le", "utf-32", "utf-8-sig"])
def test_a_long_body_in_another_encoding_is_refused(encoding: str) -> None:
    raw = f'{{"model":"m","messages":"{"naïve Größe " * 2000}"}}'.encode(encoding)
    assert len(raw) > SHORTEST
    with pytest.raises(Reject) as refusal:
        JsonBody(raw, 9)
    assert refusal.value.fault.status == 400


def test_one_body_after_another_is_read_though_the_last_one_is_still_held() -> None:
    bodies = [JsonBody(f'{{"model":"m{n}","messages":["{TEXT}"]}}'.encode(), 9) for n in range(3)]
    assert [body.text("model") for body in bodies] == ["m0", "m1", "m2"]
    assert [body.get("messages") for body in bodies] == [[TEXT]] * 3


def test_damaged_long_bodies_are_refused_or_still_json() -> None:
    rng = random.Random(7)
    whole = (
        json.dumps(
            {"model": "m", "stream": True, "messages": [{"role": "user", "content": 'a"\\é[{' * 3}] * 60, "n": 1.5},
            ensure_ascii=False,
        ).encode()
        + b" " * SHORTEST
    )
    end = whole.index(b"   ")
    for _ in range(3000):
        at = rng.randrange(end)
        cut = rng.choice((0, 0, 1, 3))
        raw = (
            whole[:at]
            + rng.choice((b"", b"\x00", b"\xff", b"x", b",", b'"', b"}", b"\\", b"[", b"\xc3"))
            + whole[at + cut :]
        )
        found = skim(raw)
        if found is not None:
            value = json.loads(raw)
            assert set(found) == set(value)
            assert all(seen is LATER or seen == value[name] for name, seen in found.items())


@pytest.mark.parametrize(("more", "decided"), [(0, True), (1, False), (60_000, False)])
def test_many_names_are_not_looked_up_one_after_the_other(more: int, decided: bool) -> None:
    raw = json.dumps({f"k{number}": 1 for number in range(MOST + more)}).encode()
    assert (skim(raw) is not None) is decided
