"""Every fault is named at its line, all of them at once."""

# ruff: noqa: E501 -- a table reads best with one case a line

import pytest
from config_samples import Listener, flaws_of, read_sample
from tailrace.proxy.config import ConfigError, Flaws, decode, parse, read

CASES = {
    "unknown key, near": ("cout: 1", ["1: unknown key `cout`, did you mean `count`?"]),
    "unknown key, dash for underscore": ("limits:\n  le-ast: 1", ["2: limits: unknown key `le-ast`, did you mean `least`?"]),
    "unknown key, far": ("limits: {zzz: 1}", ["1: limits: unknown key `zzz`, known here: least, most"]),
    "schema key only at the top": ("limits: {$schema: x}", ["1: limits: unknown key `$schema`, known here: least, most"]),
    "alone, but nothing": (
        "doors: ~",
        ["1: doors: expected text, or a mapping, or a list of such, got nothing; write [] for an empty list"],
    ),
    "alone, but wrong": ("doors: {adress: a}", ["1: doors: missing required key `address`", "1: doors: unknown key `adress`, did you mean `address`?"]),
    "missing key": ("listen:\n  - backlog: 3", ["2: listen[0]: missing required key `address`"]),
    "int from text": ("count: two", ['1: count: expected a whole number, got "two"']),
    "int from quoted number": (
        'count: "2"',
        ['1: count: expected a whole number, got the text "2" (unquoted it would be something else)'],
    ),
    "int from float": ("count: 2.0", ["1: count: expected a whole number, got 2.0"]),
    "int from bool": ("count: true", ["1: count: expected a whole number, got true"]),
    "int with leading zero": ("count: 010", ['1: count: expected a whole number, got "010"']),
    "int in base 60": ("count: 1:30", ['1: count: expected a whole number, got "1:30"']),
    "int too large": ("count: 9223372036854775808", ["1: count: expected a whole number below 2^63"]),
    "int far too large": ("count: " + "9" * 5000, ["1: count: expected a whole number below 2^63"]),
    "int from nothing": ("count:", ["1: count: expected a whole number, got nothing"]),
    "int from list": ("count: []", ["1: count: expected a whole number, got a list"]),
    "float from inf": ("ratio: .inf", ['1: ratio: expected a number, got ".inf"']),
    "float from nan": ("ratio: .NaN", ['1: ratio: expected a number, got ".NaN"']),
    "float beyond range": ("ratio: 1e999", ['1: ratio: expected a number, got "1e999"']),
    "bool from on": ("flag: on", ['1: flag: expected true or false, got "on"']),
    "bool from number": ("flag: 1", ["1: flag: expected true or false, got 1"]),
    "bool from quoted": ("flag: 'true'", ['1: flag: expected true or false, got the text "true" (unquoted it would be something else)']),
    "text from nothing": ("text:", ["1: text: expected text, got nothing"]),
    "text from mapping": ("text: {a: 1}", ["1: text: expected text, got a mapping"]),
    "enum": ("colour: gren", ['1: colour: expected one of red, green, got "gren", did you mean `green`?']),
    "literal": ("policy: tall", ['1: policy: expected one of tail, random, 2, got "tall", did you mean `tail`?']),
    "list from scalar": ("words: a", ['1: words: expected a list, got "a"']),
    "list from nothing": ("words:", ["1: words: expected a list, got nothing; write [] for an empty list"]),
    "mapping from nothing": ("weights:", ["1: weights: expected a mapping, got nothing; write {} for an empty mapping"]),
    "element": ("words:\n- a\n- []", ["3: words[1]: expected text, got a list"]),
    "value of a mapping": ("weights:\n  a: 0.5\n  b: 2", ["3: weights.b: must be at most 1, got 2"]),
    "dataclass from scalar": ("limits: 5", ["1: limits: expected a mapping with the keys least, most, got 5"]),
    "dataclass with shorthand": (
        "listen: [[]]",
        ["1: listen[0]: expected text, or a mapping with the keys address, backlog, got a list"],
    ),
    "duration": ("limits: {least: 5 s}", ['1: limits.least: expected a duration such as 5 (seconds), "250ms", "5s", "2m" or "1h", got "5 s"']),
    "duration below zero": ("limits: {least: -1}", ["1: limits.least: must not be negative, got -1"]),
    "duration below zero with its unit": ("limits: {least: -5s}", ['1: limits.least: must not be negative, got "-5s"']),
    "size of half a byte": ("body: 0.5B", ['1: body: expected a size such as 1024, "64KB", "32MiB" or "1GiB", got "0.5B"']),
    "size without its B": ("body: 32M", ['1: body: expected a size such as 1024, "64KB", "32MiB" or "1GiB", got "32M"']),
    "bound in the field's unit": ("body: 1000B", ['1: body: must be at least 1KiB, got "1000B"']),
    "port": ("port: 65536", ["1: port: must be at most 65535, got 65536"]),
    "form": ("model: A_b", ['1: model: must be lower-case letters, digits, dots or dashes, got "A_b"']),
    "empty": ("names: []", ["1: names: must not be empty"]),
    "own type": ("network: 10.0.0.1/8", ['1: network: expected a network such as 10.0.0.0/8, got "10.0.0.1/8"']),
    "path": ("path: ''", ['1: path: expected a path, got empty text']),
    "secret": ("key: []", ["1: key: expected a secret, got a list"]),
    "empty secret": ("key: ''", ["1: key: expected a secret, got empty text"]),
    "form of a secret": ("token: A1b2", ["1: token: must be four small letters or more"]),
    "a number out of bounds is no text": ("level: 0", ["1: level: must be at least 1, got 0"]),
    "a character that turns the line around": ('count: "\u202e"', ['1: count: expected a whole number, got "\\u202e"']),
    "union of scalars": (
        "patience: p96",
        ['1: patience: expected a duration such as 5 (seconds), "250ms", "5s", "2m" or "1h" or p95, got "p96"'],
    ),
    "union picks the mapping": ("store: {fil: x}", ["1: store: missing required key `file`", "1: store: unknown key `fil`, did you mean `file`?"]),
    "union of mappings blames the likelier": ("where: {least: x}", ['1: where.least: expected a duration such as 5 (seconds), "250ms", "5s", "2m" or "1h", got "x"']),
    "between fields": ("count: 1\nlimits:\n  least: 2m", ["3: limits: `least` is longer than `most`"]),
    "inside a hook": ("entries:\n- hedge: {lest: 1}", ["2: entries[0].hedge: unknown key `lest`, did you mean `least`?"]),
    "a hook meets a scalar": ("entries:\n- 5", ["2: entries[0]: expected a mapping, got 5"]),
    "a hook raises": ("entries: [{a: {}, b: {}}]", ["1: entries[0]: an entry is one name over its settings"]),
    "inside itself": ("tree: {branches: [{branches: [{lable: x}]}]}", ["1: tree.branches[0].branches[0]: unknown key `lable`, did you mean `label`?"]),
    "key twice": ("count: 1\nflag: true\ncount: 2", ["3: the key `count` stands here twice (first on line 1)"]),
    "key twice, deep": ("tree:\n  label: a\n  label: b", ["3: tree: the key `label` stands here twice (first on line 2)"]),
    "key twice where nobody decodes": ("later: {a: {b: 1, b: 2}}", ["1: later.a: the key `b` stands here twice (first on line 1)"]),
    "tag": ("count: !int 5", ["1: count: the tag `!int` means nothing here"]),
    "python tag": ("text: !!python/object:os.system x", ["1: text: the tag `tag:yaml.org,2002:python/object:os.system` means nothing here"]),
    "line breaks in a value stay in one line": ('count: "a\\nb: c"', ['1: count: expected a whole number, got "a\\nb: c"']),
    "line breaks in a key stay in one line": ('"a\\nb": 1\ncount: x', ["1: unknown key `a\\nb`", '2: count: expected a whole number, got "x"']),
    "long value is cut": ("count: " + "x" * 99, ['1: count: expected a whole number, got "' + "x" * 59 + '…"']),
    "all at once": (
        "flag: on\ncuont: 1\nlimits:\n  least: x\n  most: 1h\nport: -1",
        [
            '1: flag: expected true or false, got "on"',
            "2: unknown key `cuont`, did you mean `count`?",
            '4: limits.least: expected a duration such as 5 (seconds), "250ms", "5s", "2m" or "1h", got "x"',
            "6: port: must be at least 0, got -1",
        ],
    ),
}  # fmt: skip

NO_TREE = {
    "nothing": ("", "1: the file is empty: expected a mapping"),
    "comments only": ("# a\n# b\n", "1: the file is empty: expected a mapping"),
    "null": ("--- ~", "1: the file is empty: expected a mapping"),
    "list": ("- a", "1: expected a mapping at the top, got a list"),
    "scalar": ("\n\nword", '3: expected a mapping at the top, got "word"'),
    "unclosed list": ("count: 1\nwords: [a", "3: not YAML: while parsing a flow sequence, did not find expected ',' or ']'"),
    "unquoted reference": ("limits: {least: ${N}, most: 1}", "1: not YAML: while parsing a flow mapping, did not find expected ',' or '}'; quote it: \"${N}\""),
    "unquoted reference in a list": ('words: ["${A:-a}", x-${file:a b}/y]', "1: not YAML: while parsing a flow sequence, did not find expected ',' or ']'; quote it: \"x-${file:a b}/y\""),
    "unquoted reference on its line": ("limits: {\n  least: ${N},\n  most: 1}", "2: not YAML: while parsing a flow mapping, did not find expected ',' or '}'; quote it: \"${N}\""),
    "quoted reference beside another fault": ("limits: {least: '${N:-1}' most: 1} # ${N}", "1: not YAML: while parsing a flow mapping, did not find expected ',' or '}'"),
    "bad indent": ("count: 1\n  flag: true", "2: not YAML: mapping values are not allowed in this context"),
    "tab": ("limits:\n\tleast: 1", "2: not YAML: while scanning for the next token, found character that cannot start any token; it is a tab, and only spaces may indent"),
    "tab in the middle": ("limits:\n  least: 1\n \tmost: 2", "3: not YAML: while scanning a plain scalar, found a tab character that violates indentation"),
    "two documents": ("count: 1\n---\ncount: 2", "2: a second document begins (`---`): one file holds one"),
    "control character": ("count: 1\ntext: a\x07", "2: the character U+0007 cannot stand in a YAML file"),
    "lone surrogate": ("text: \ud800", "1: the character U+D800 cannot stand in a YAML file"),
    "list as key": ("[a]: 1", "1: a key must be text"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), CASES.values(), ids=CASES)
def test_a_fault_is_named_at_its_line(text: str, expected: list[str]) -> None:
    found = flaws_of(text)
    assert [line.split(", known here: flag")[0] for line in found] == expected


@pytest.mark.parametrize(("text", "expected"), NO_TREE.values(), ids=NO_TREE)
def test_a_file_that_is_no_mapping_says_why(text: str, expected: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse(text, "t.yaml")
    assert str(raised.value) == f"t.yaml:{expected}"


def test_the_sample_itself_has_no_fault() -> None:
    assert read_sample("$schema: x.json").count == 3


def test_a_missing_file_is_a_flaw(tmp_path) -> None:
    with pytest.raises(ConfigError, match=r"/none\.yaml:1: the file cannot be read: No such file"):
        read(tmp_path / "none.yaml")


def test_a_folder_is_a_flaw(tmp_path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        read(tmp_path)


def test_a_file_of_another_encoding_is_a_flaw_at_its_line(tmp_path) -> None:
    (tmp_path / "c.yaml").write_bytes(b"a: 1\nb: \xff\n")
    with pytest.raises(ConfigError, match=r":2: the file is not UTF-8 text"):
        read(tmp_path / "c.yaml")


def test_a_byte_order_mark_is_no_fault(tmp_path) -> None:
    (tmp_path / "c.yaml").write_bytes(b"\xef\xbb\xbfcount: 1\n")
    assert read(tmp_path / "c.yaml").root.plain() == {"count": 1}


def test_a_file_of_another_kind_altogether_does_not_fill_the_screen() -> None:
    assert len(flaws_of("".join(f"key{i}: 1\n" for i in range(5000)))) == 500


def test_faults_of_the_parse_cannot_be_lost_by_decoding_a_part() -> None:
    source = parse("listen: {address: a}\nother: ${UNSET}", "t.yaml", environ={})
    flaws = Flaws()
    node = source.root.get("listen")
    assert node is not None
    assert decode(Listener, node, flaws) == Listener(address="a")
    assert [flaw.text for flaw in flaws] == ["other: environment variable `UNSET` is not set"]


def test_flaws_are_sorted_and_counted_once() -> None:
    text = "words: &w [a, []]\nnames: *w\ncount: x\n"
    assert flaws_of(text) == ["1: words[1]: expected text, got a list", '3: count: expected a whole number, got "x"']
