"""Rendering fills in every default and decodes to the same again, bar its secrets."""

# ruff: noqa: E501 -- a table reads best with one case a line

from dataclasses import dataclass
from ipaddress import IPv4Network
from pathlib import Path

import pytest
from config_samples import Branch, Colour, Entry, File, Limits, Listener, Sample, read_sample
from hypothesis import given
from hypothesis import strategies as st
from tailrace.proxy.config import Secret, render
from tailrace.proxy.config.secret import looks_secret
from tailrace.proxy.config.units import Bytes, Duration


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    name: str
    password: Secret

    def to_plain(self) -> object:
        return {self.name: [self.password]}


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30) | st.sampled_from(
    ["on", "1", "1_0", "~", "null", "1e3", "0x1", "${A}", "$$", "$$${", "$", "a: b", "# c", "*", "<<", "- x", "2024-01-02", "\ufeff", "\x85", "1:2"]
)  # fmt: skip
WHOLE = st.integers(-(2**63) + 1, 2**63 - 1)
FLOAT = st.floats(allow_nan=False, allow_infinity=False)
LENGTH = st.floats(0, allow_nan=False, allow_infinity=False) | st.integers(0, 10**6).map(lambda n: n / 1000)
PATH = TEXT.filter(lambda text: "\0" not in text).map(Path)
LIMITS = st.tuples(LENGTH, LENGTH).map(lambda pair: Limits(least=min(pair), most=max(pair)))
NAME = TEXT.filter(lambda name: not looks_secret(name))  # what stands under another is masked
JSON = st.recursive(
    st.none() | st.booleans() | WHOLE | FLOAT | TEXT, lambda inner: st.lists(inner) | st.dictionaries(NAME, inner)
)
SAMPLES = st.builds(
    Sample,
    flag=st.booleans(),
    count=WHOLE,
    ratio=FLOAT,
    text=TEXT,
    path=PATH,
    colour=st.sampled_from(Colour),
    policy=st.sampled_from(["tail", "random", 2]),
    maybe=st.none() | WHOLE,
    words=st.lists(TEXT).map(tuple),
    numbers=st.frozensets(WHOLE),
    weights=st.dictionaries(TEXT, st.floats(0, 1)),
    listen=st.lists(st.builds(Listener, address=TEXT, backlog=st.integers(1, 9))).map(tuple),
    limits=LIMITS,
    patience=LENGTH | st.just("p95"),
    body=st.integers(1024, 2**63 - 1) | st.integers(1, 10**6).map(lambda n: n * 1024),
    network=st.sampled_from([IPv4Network("10.0.0.0/8"), IPv4Network("0.0.0.0/0")]),
    store=st.just("memory") | st.builds(File, file=PATH),
    where=st.none() | LIMITS | st.builds(File, file=PATH),
    entries=st.lists(st.builds(Entry, name=st.sampled_from(["hedge", "on", "5"]), settings=LIMITS)).map(tuple),
    tree=st.recursive(
        st.builds(Branch, label=TEXT), lambda inner: st.builds(Branch, branches=st.lists(inner, max_size=2).map(tuple))
    ),
    level=st.integers(1, 9) | TEXT,
    loose=WHOLE | TEXT,
    switch=st.sampled_from([1, True, "auto"]),
    free=JSON,
)


@given(SAMPLES)
def test_what_is_rendered_decodes_to_the_same(sample: Sample) -> None:
    assert read_sample(render(sample)) == sample


def test_every_default_is_filled_in() -> None:
    lines = render(read_sample("text: x")).splitlines()
    for line in ("flag: false", "count: 3", "text: x", "key: null", "colour: red", "patience: 250ms", "body: 1MiB"):
        assert line in lines
    assert lines[lines.index("limits:") :][:3] == ["limits:", "  least: 1s", "  most: 1m"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, 0), (0.25, "250ms"), (0.0005, "0.5ms"), (1.0, "1s"), (1.5, "1500ms"), (90.0, "90s"), (120.0, "2m"), (5400.0, "90m"), (86400.0, "1d"), (1e300, 1e300), (1 / 3, 1 / 3)],
)  # fmt: skip
def test_durations_are_written_for_people(seconds: float, text: object) -> None:
    assert Duration().plain(seconds) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, 0),
        (1, 1),
        (1000, "1KB"),
        (1024, "1KiB"),
        (1536, 1536),
        (10**9, "1GB"),
        (3 << 40, "3TiB"),
        (1035155356261441 << 10, "1035155356261441KiB"),
    ],
)
def test_sizes_are_written_for_people(size: int, text: object) -> None:
    assert Bytes().plain(size) == text
    assert not isinstance(text, str) or Bytes().read(text) == size


def test_secrets_are_masked() -> None:
    text = render(read_sample("key: hunter2\nlater: {password: '${P}', user: me}", {"P": "hunter2"}))
    assert "key: '***'" in text
    assert "  password: '***'\n  user: me" in text
    assert "hunter2" not in text


def test_secrets_are_masked_in_what_a_hook_writes() -> None:
    text = render(Pair(name="a", password=Secret("hunter2")))
    assert text == "a:\n- '***'\n"


def test_a_boolean_choice_is_no_number() -> None:
    assert "switch: true" in render(Sample(switch=True))
    assert "switch: 1" in render(Sample(switch=1))


def test_text_of_a_file_is_masked(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("hunter2\n")
    reference = f"${{file:{tmp_path}/x}}"
    sample = read_sample(
        f"text: {reference}\nwords: [a, 'b-{reference}']\nfree: {{a: ['{reference}']}}\nkey: {reference}"
    )
    assert (sample.text, sample.words, sample.key) == ("hunter2", ("a", "b-hunter2"), Secret("hunter2"))
    assert "hunter2" not in render(sample) + repr(sample)
    assert render(sample).count("***") == 4
