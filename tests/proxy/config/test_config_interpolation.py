"""References to the environment and to files."""

# ruff: noqa: E501 -- a table reads best with one case a line

from pathlib import Path

import pytest
from config_samples import flaws_of, read_sample
from tailrace.proxy.config import ConfigError, Secret, decode_source, parse, read
from tailrace.proxy.config.interpolation import LARGEST_FILE

ENVIRON = {"N": "8", "HOST": "example", "EMPTY": "", "ON": "true", "DOLLAR": "${N}", "D": "250ms"}

TAKES = {
    "whole, typed": ("count: ${N}", "count", 8),
    "whole, quoted": ('count: "${N}"', "count", 8),
    "in a flow mapping": ('limits: {least: "${N}"}', "limits.least", 8.0),
    "boolean": ("flag: ${ON}", "flag", True),
    "duration": ("patience: ${D}", "patience", 0.25),
    "as text": ("text: ${N}", "text", "8"),
    "part of a number": ("count: 1${N}", "count", 18),
    "part of text": ("text: http://${HOST}:${N}/", "text", "http://example:8/"),
    "default, unset": ("text: ${NONE:-x y}", "text", "x y"),
    "default, empty": ("text: ${EMPTY:-x}", "text", "x"),
    "default, set": ("text: ${N:-x}", "text", "8"),
    "default, typed": ("count: ${NONE:-4}", "count", 4),
    "empty default of an optional": ("maybe: ${NONE:-}", "maybe", None),
    "empty default as text": ("text: ${NONE:-}", "text", ""),
    "empty variable as text": ("text: ${EMPTY}", "text", ""),
    "dollar": ("text: $$5", "text", "$5"),
    "escaped reference": ("text: $${N}", "text", "${N}"),
    "lone dollars": ("text: a$b $ c$", "text", "a$b $ c$"),
    "three dollars": ("text: $$${N}", "text", "$8"),
    "not twice": ("text: ${DOLLAR}", "text", "${N}"),
    "single quotes": ("text: '${HOST}'", "text", "example"),
    "keys stay": ("weights: {'${N}': 1}", "weights", {"${N}": 1.0}),
}  # fmt: skip

REFUSES = {
    "unset": ("count: ${NONE}", ["1: count: environment variable `NONE` is not set"]),
    "unset, two of them": (
        "text: ${A}-${B}",
        ["1: text: environment variable `A` is not set", "1: text: environment variable `B` is not set"],
    ),
    "value of the wrong type": ("count: ${HOST}", ['1: count: expected a whole number, got what "${HOST}" stands for']),
    "value out of bounds": ("listen: [{address: a, backlog: '${Z}'}]", ['1: listen[0].backlog: must be at least 1, got what "${Z}" stands for']),
    "value of no choice": ("policy: ${HOST}", ['1: policy: expected one of tail, random, 2, got what "${HOST}" stands for']),
    "empty variable for a secret": ("key: ${EMPTY}", ["1: key: expected a secret, got empty text"]),
    "empty variable for a number": ("maybe: ${EMPTY}", ['1: maybe: expected a whole number, got what "${EMPTY}" stands for']),
    "no name": ("text: ${}", ['1: text: "${}" is neither ${NAME}, ${NAME:-default} nor ${file:PATH}']),
    "bad name": ("text: ${a b}", ['1: text: "${a b}" is neither ${NAME}, ${NAME:-default} nor ${file:PATH}']),
    "not closed": ("text: ${N", ["1: text: `${` is not closed (references do not nest; `$$` writes a dollar sign)"]),
    "nested": ("text: ${N:-${M}}", ["1: text: `${` is not closed (references do not nest; `$$` writes a dollar sign)"]),
    "file without name": ("text: ${file:}", ["1: text: `${file:}` names no file"]),
    "device": ("text: ${file:/dev/zero}", ['1: text: file "/dev/zero" is not a regular file']),
    "null in a path": ('text: "${file:a\\0}"', ["1: text: `${file:}` names no file"]),
}  # fmt: skip


@pytest.mark.parametrize(("text", "field", "expected"), TAKES.values(), ids=TAKES)
def test_a_reference_is_replaced(text: str, field: str, expected: object) -> None:
    value: object = read_sample(text, ENVIRON)
    for step in field.split("."):
        value = getattr(value, step)
    assert (value, type(value)) == (expected, type(expected))


@pytest.mark.parametrize(("text", "expected"), REFUSES.values(), ids=REFUSES)
def test_a_bad_reference_is_named(text: str, expected: list[str]) -> None:
    assert flaws_of(text, ENVIRON | {"Z": "0"}) == expected


def test_a_variable_that_is_not_utf8_is_named() -> None:
    assert flaws_of("text: ${X}", {"X": "a\udcff"}) == ["1: text: environment variable `X` is not UTF-8"]


class TestFiles:
    @pytest.mark.parametrize(
        ("content", "expected"),
        [("s3cret\n", "s3cret"), ("s3cret", "s3cret"), ("a\nb\n\n", "a\nb\n"), ("12", "12"), (" x ", " x ")],
    )
    def test_one_newline_is_stripped(self, tmp_path: Path, content: str, expected: str) -> None:
        (tmp_path / "x").write_text(content)
        assert read_sample(f"key: ${{file:{tmp_path}/x}}").key == Secret(expected)

    def test_relative_to_the_configuration_and_listed_as_dependencies(self, tmp_path: Path) -> None:
        (tmp_path / "x").write_text("1")
        (tmp_path / "c.yaml").write_text("a: ${file:x}\nb: ${file:x}\nc: ${file:gone}")
        source = read(tmp_path / "c.yaml", environ={})
        assert source.path == tmp_path / "c.yaml"
        assert source.files == (tmp_path / "c.yaml", tmp_path / "x", tmp_path / "gone")

    def test_a_missing_one_is_named(self, tmp_path: Path) -> None:
        text = f"key: ${{file:{tmp_path}/x}}"
        assert flaws_of(text) == [f'1: key: file "{tmp_path}/x" cannot be read: No such file or directory']

    def test_a_folder_is_named(self, tmp_path: Path) -> None:
        assert flaws_of(f"key: ${{file:{tmp_path}}}") == [f'1: key: file "{tmp_path}" is not a regular file']

    def test_an_empty_one_is_no_absent_secret(self, tmp_path: Path) -> None:
        (tmp_path / "x").write_text("\n")
        assert flaws_of(f"key: ${{file:{tmp_path}/x}}") == ["1: key: expected a secret, got empty text"]

    def test_bytes_that_are_no_text_are_named(self, tmp_path: Path) -> None:
        (tmp_path / "x").write_bytes(b"\xff")
        assert flaws_of(f"key: ${{file:{tmp_path}/x}}") == [f'1: key: file "{tmp_path}/x" is not UTF-8 text']

    def test_a_large_one_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "x").write_bytes(b"a" * (LARGEST_FILE + 1))
        assert flaws_of(f"key: ${{file:{tmp_path}/x}}") == [f'1: key: file "{tmp_path}/x" is larger than 1 MiB']

    def test_many_large_ones_are_refused(self, tmp_path: Path) -> None:
        (tmp_path / "x").write_bytes(b"a" * LARGEST_FILE)
        text = "words:\n" + f"- ${{file:{tmp_path}/x}}\n" * 20
        assert flaws_of(text)[0] == "10: words[8]: interpolation brings in more than 8 MiB"

    def test_content_is_never_quoted_in_a_fault(self, tmp_path: Path) -> None:
        (tmp_path / "x").write_text("hunter2")
        reference = f"${{file:{tmp_path}/x}}"
        text = "".join(
            f"{key}: {reference}\n" for key in ("flag", "count", "ratio", "policy", "colour", "port", "network")
        )
        text += (
            f"listen: [{{backlog: '{reference}'}}]\npatience: pre{reference}\nmodel: _{reference}\nbody: {reference}\n"
        )
        with pytest.raises(ConfigError) as raised:
            decode_source(type(read_sample("flag: true")), parse(text, "t.yaml"))
        assert len(raised.value.flaws) == 12
        assert "hunter2" not in str(raised.value)
