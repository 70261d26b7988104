"""What each kind of field takes."""

from ipaddress import IPv4Network
from pathlib import Path

import pytest
from config_samples import Branch, Colour, Entry, File, Limits, Listener, read_sample
from tailrace.proxy.config import ConfigError, Node, decode_source, parse, read
from tailrace.proxy.config.scalars import typed

VALUES = {
    "true": ("flag: true", "flag", True),
    "whole": ("count: 10_000", "count", 10000),
    "hexadecimal": ("count: 0xff", "count", 255),
    "negative": ("count: -3", "count", -3),
    "whole as float": ("ratio: 3", "ratio", 3.0),
    "exponent": ("ratio: 1e-3", "ratio", 0.001),
    "bare fraction": ("ratio: .5", "ratio", 0.5),
    "text that looks like a boolean": ("text: on", "text", "on"),
    "text that is a boolean": ("text: true", "text", "true"),
    "text that is a number": ("text: 1.10", "text", "1.10"),
    "text that is a date": ("text: 2024-01-02", "text", "2024-01-02"),
    "text in base 60": ("text: 12:30:45", "text", "12:30:45"),
    "text that is empty": ("text: ''", "text", ""),
    "block of text": ("text: |\n  a\n  b\n", "text", "a\nb\n"),
    "tagged text": ("text: !!str 5", "text", "5"),
    "enum": ("colour: green", "colour", Colour.GREEN),
    "literal number": ("policy: 2", "policy", 2),
    "optional none": ("maybe: ~", "maybe", None),
    "optional": ("maybe: 7", "maybe", 7),
    "list": ("words: [1, b, yes]", "words", ("1", "b", "yes")),
    "set": ("numbers: [3, 3]", "numbers", frozenset({3})),
    "mapping": ("weights: {yes: 1, 5: 0.5}", "weights", {"yes": 1.0, "5": 0.5}),
    "shorthand": ("listen: [127.0.0.1:80]", "listen", (Listener(address="127.0.0.1:80"),)),
    "alone, shorthand": ("doors: 127.0.0.1:80", "doors", (Listener(address="127.0.0.1:80"),)),
    "alone, mapping": ("doors: {address: a}", "doors", (Listener(address="a"),)),
    "alone, in a list": ("doors: [a, {address: b}]", "doors", (Listener(address="a"), Listener(address="b"))),
    "nested": ("limits: {least: 2s}", "limits", Limits(least=2.0)),
    "seconds, bare": ("limits: {least: 0.5}", "limits", Limits(least=0.5)),
    "milliseconds": ("patience: 250ms", "patience", 0.25),
    "minutes": ("limits: {most: 2m}", "limits", Limits(most=120.0)),
    "hours and minutes": ("limits: {most: 1h30m}", "limits", Limits(most=5400.0)),
    "fraction of an hour": ("limits: {most: 0.5h}", "limits", Limits(most=1800.0)),
    "a tenth of a second is one": ("limits: {least: 100ms}", "limits", Limits(least=0.1)),
    "zero": ("limits: {least: 0}", "limits", Limits(least=0.0)),
    "union word": ("patience: p95", "patience", "p95"),
    "bytes": ("body: 2048", "body", 2048),
    "kilobytes": ("body: 64KB", "body", 64000),
    "mebibytes": ("body: 32MiB", "body", 32 << 20),
    "gibibytes, with a space": ("body: 1.5 GiB", "body", 3 << 29),
    "port for the kernel": ("port: 0", "port", 0),
    "union of number and text, text": ("level: high", "level", "high"),
    "union of text and number, number": ("loose: 5", "loose", 5),
    "union of text and number, text": ("loose: '5'", "loose", "5"),
    "literal boolean": ("switch: true", "switch", True),
    "own type": ("network: 192.168.0.0/16", "network", IPv4Network("192.168.0.0/16")),
    "union of word and mapping": ("store: {file: /x}", "store", File(file=Path("/x"))),
    "union of mappings": ("where: {least: 1}", "where", Limits(least=1.0)),
    "hook": ("entries: [{hedge: {least: 2}}]", "entries", (Entry(name="hedge", settings=Limits(least=2.0)),)),
    "hook, ordinary": ("entries: [{name: a, settings: {}}]", "entries", (Entry(name="a", settings=Limits()),)),
    "inside itself": ("tree: {branches: [{label: b}]}", "tree", Branch(branches=(Branch(label="b"),))),
    "alias": ("words: &w [p]\nnames: *w", "names", ("p",)),
    "merge": ("limits: &l {most: 50}\nwhere: {<<: *l, least: 3}", "where", Limits(least=3.0, most=50.0)),
    "merges, the first wins": (
        "where: {<<: [{least: 2}, {least: 3, most: 4}]}",
        "where",
        Limits(least=2.0, most=4.0),
    ),
    "free": ("free: {a: [1, on, null]}", "free", {"a": [1, "on", None]}),
}  # fmt: skip


@pytest.mark.parametrize(("text", "field", "expected"), VALUES.values(), ids=VALUES)
def test_a_field_takes(text: str, field: str, expected: object) -> None:
    value = getattr(read_sample(text), field)
    assert value == expected
    assert type(value) is type(expected)


@pytest.mark.parametrize(
    "text", ["on", "yes", "010", "1:30", "+", "-", ".", "1.2.3", "0x", "1e", "e3", ".inf", "nan", "\uff12"]
)
def test_text_that_could_be_misread_stays_text(text: str) -> None:
    assert typed(text) == text


def test_a_relative_path_starts_at_the_file_it_is_written_in(tmp_path) -> None:
    (tmp_path / "c.yaml").write_text("file: keys/a.yaml")
    assert decode_source(File, read(tmp_path / "c.yaml")).file == tmp_path / "keys/a.yaml"


class TestNode:
    def test_tells_its_place_and_kind(self) -> None:
        root = parse("a:\n  - b: 1\n    c: x", "t.yaml").root
        a = root.get("a")
        assert a is not None
        ((key, value), (_, last)) = a.elements()[0].items()
        assert [root.kind, a.kind, key.kind] == ["mapping", "sequence", "scalar"]
        assert (key.text, value.scalar(), value.line, value.file) == ("b", 1, 2, "t.yaml")
        assert (last.where, last.line) == ("a[0].c", 3)

    @pytest.mark.parametrize("ask", [Node.elements, Node.scalar, Node.as_text])
    def test_what_it_is_not_is_bad_input(self, ask) -> None:
        node = parse("a: {}", "t.yaml").root.get("a")
        with pytest.raises(ConfigError, match=r"t\.yaml:1: a: expected .*, got a mapping"):
            ask(node)

    def test_equality_is_by_content(self) -> None:
        one, other = (parse(text, "t").root for text in ("a: [1, x]", "a:\n- 1\n- 'x'"))
        assert one == other
        assert one != parse("a: [1, y]", "t").root
        assert len({one, other}) == 1
