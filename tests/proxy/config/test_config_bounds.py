"""A file that would take all memory, or all stack, is refused in time."""

# ruff: noqa: E501 -- a table reads best with one case a line

import pytest
from config_samples import read_sample
from tailrace.proxy.config import ConfigError, parse, tree
from tailrace.proxy.config.interpolation import LARGEST_FILE
from tailrace.proxy.config.tree import DEEPEST, MOST_ALIASED_NODES

LAUGHS = "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 12))

REFUSED = {
    "a billion laughs": (LAUGHS, f"5: aliases bring in more than {MOST_ALIASED_NODES} values"),
    "an alias inside what it names": ("a: &a {b: *a}", "1: the alias `*a` stands inside what it names"),
    "a merge of itself": ("a: &a\n  <<: *a", "2: the alias `*a` stands inside what it names"),
    "an alias of nothing": ("a: *b", "1: the alias `*b` names nothing above it"),
    "many merges of one mapping": (
        "a: &a {" + ", ".join(f"k{i}: 1" for i in range(100)) + "}\nb:\n" + "- {<<: *a}\n" * 60,
        "52: aliases bring in more than 10000 values",
    ),
    "deep lists": ("a: " + "[" * 900, f"1: nested more than {DEEPEST} levels deep"),
    "deep mappings": ("".join(" " * i + "a:\n" for i in range(60)), f"{DEEPEST}: nested more than {DEEPEST} levels deep"),
    "deep by aliases": (
        "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}]\n" for i in range(1, 50)),
        f"{DEEPEST - 1}: nested more than {DEEPEST} levels deep",
    ),
    "many bytes": ("a: " + "x" * LARGEST_FILE, "1: the file is larger than 1 MiB"),
    "many bytes in few characters": ("a: " + "€" * (LARGEST_FILE // 2), "1: the file is larger than 1 MiB"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), REFUSED.values(), ids=REFUSED)
def test_is_refused(text: str, expected: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse(text, "t.yaml")
    assert str(raised.value).removeprefix("t.yaml:") == expected


def test_too_many_values_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree, "MOST_NODES", 100)
    parse("a: [" + "1," * 97 + "]", "t.yaml")
    with pytest.raises(ConfigError, match=r"t\.yaml:1: the file holds more than 100 values"):
        parse("a: [" + "1," * 98 + "]", "t.yaml")


@pytest.mark.parametrize("opening", ["[", "{", "- ", "? ", "{a: ", "&a ["])
def test_any_depth_ends_soon(opening: str) -> None:
    with pytest.raises(ConfigError):
        parse("a: " + opening * (LARGEST_FILE // len(opening) - 9), "t.yaml")


def test_the_deepest_that_is_allowed_is_read_and_decoded() -> None:
    text = "free: " + "[" * (DEEPEST - 2) + "1" + "]" * (DEEPEST - 2)
    value = read_sample(text).free
    for _ in range(DEEPEST - 2):
        (value,) = value
    assert value == 1


def test_aliases_in_measure_are_fine() -> None:
    text = "words: &w [a, b]\nfree:\n" + "- *w\n" * 1000
    assert read_sample(text).free == [["a", "b"]] * 1000
