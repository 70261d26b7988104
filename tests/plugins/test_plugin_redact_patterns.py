"""The patterns of the `redact` plugin, and texts that arrive in pieces."""

from __future__ import annotations

import json
import re

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tailrace.plugins.redact import Config, Redact
from tailrace.plugins.redact_patterns import Patterns
from tailrace.plugins.redact_prefix import analysed
from tailrace.plugins.redact_text import Arguments, Plain
from tailrace.proxy.personal import BUILT_IN

ALL = Redact(Config(patterns=tuple(BUILT_IN)))._patterns


def redacted(text: str, patterns: Patterns = ALL) -> str:
    return Plain(patterns).feed(text, final=True)


def in_pieces(pieces, patterns: Patterns = ALL, kind=Plain) -> str:
    scanner = kind(patterns)
    return "".join([*map(scanner.feed, pieces), scanner.feed("", final=True)])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a@b.co", "[email]"),
        ("write to Bob.Smith+x@mail.example.com.", "write to [email]."),
        ("<jürgen@bücher.example>", "<[email]>"),
        ("a@b", "a@b"),
        ("@b.com a@ b.com", "@b.com a@ b.com"),
        ("4111 1111 1111 1111", "[credit_card]"),
        ("4111-1111-1111-1111,", "[credit_card],"),
        ("id 4111111111111111 20 items", "id [credit_card] 20 items"),
        ("12 5500-0000-0000-0004", "12 [credit_card]"),
        ("4111 1111 1111 1112", "4111 1111 1111 1112"),
        ("94111111111111111", "94111111111111111"),
        ("3782 822463 10005, 378282246310005", "[credit_card], [credit_card]"),
        ("123-45-6789", "[us_ssn]"),
        ("123 45 6789.", "[us_ssn]."),
        ("000-45-6789 666-45-6789 123-00-6789 123-45-0000", "000-45-6789 666-45-6789 123-00-6789 123-45-0000"),
        ("123-45-67890", "123-45-67890"),
        ("DE89 3704 0044 0532 0130 00 IS", "[iban] IS"),
        ("GB82WEST12345698765432", "[iban]"),
        ("GB83WEST12345698765432", "GB83WEST12345698765432"),
        ("sk-abcdefghijklmnop", "[api_key]"),
        ("key=sk-proj-" + "a" * 150 + " next", "key=[api_key] next"),
        ("ghp_" + "a" * 36, "[api_key]"),
        ("AKIAIOSFODNN7EXAMPLE", "[api_key]"),
        ("risk-averse-and-more-words-here", "risk-averse-and-more-words-here"),
        ("10.1.2.3", "[ipv4]"),
        ("at 255.255.255.255.", "at [ipv4]."),
        ("1.2.3.4.5 256.1.1.1 1.2.3", "1.2.3.4.5 256.1.1.1 1.2.3"),
        ("+1 555 123 4567", "[phone]"),
        ("(555) 123-4567, 1-555-123-4567", "[phone], [phone]"),
        ("+49 (0) 30 123456", "[phone]"),
        ("5551234567 2024-11-29 12:30", "5551234567 2024-11-29 12:30"),
        ("", ""),
    ],
)
def test_what_is_replaced(text: str, expected: str):
    assert redacted(text) == expected
    assert in_pieces(text) == expected
    for at in range(len(text)):
        assert in_pieces((text[:at], text[at:])) == expected


@pytest.mark.parametrize(
    ("pattern", "fault"),
    [
        ("a*", "matches empty text"),
        ("a?", "matches empty text"),
        ("x|", "matches empty text"),
        ("ab+", "longer than 256 characters"),
        ("a{1,300}", "longer than 256 characters"),
        ("(?:ab{1,20}){1,20}", "longer than 256 characters"),
        ("a(?=b*)c", "further than 256 characters"),
        ("^a", "anchor"),
        ("a$", "anchor"),
        (r"a\Z", "anchor"),
        (r"(a)\1", "its own groups"),
        ("(?P<x>a)(?P=x)", "its own groups"),
        ("(?>a)b", "gives nothing back"),
        ("a{1,3}+b", "gives nothing back"),
        ("(", "no regular expression"),
        ("a{2,1}", "no regular expression"),
    ],
)
def test_expressions_that_no_stream_can_be_searched_for(pattern: str, fault: str):
    with pytest.raises(ValueError, match=fault):
        analysed(pattern, 256)
    assert any(fault in str(said) for said in Config(own={"mine": pattern}).check_own())


def test_faults_of_the_configuration():
    assert list(Config(patterns=()).check()) == ["there is nothing to replace: give `patterns` or `own`"]
    assert list(map(str, Config(own={"email": "x"}).check_own())) == [
        "own.email: 'email' is the name of a built-in pattern"
    ]
    fine = Config(patterns=(), own={"mine": "a{1,9}"})
    assert not [*fine.check(), *fine.check_own()]


OWN = [
    r"a{2,3}b",
    r"\bcab\b",
    r"(?i)a(?:bc|c){1,2}",
    r"(?<!a)b{1,3}(?!c)",
    r"(?:a|b){2}c?",
    r"[^a]c",
    r"a.b",
    r"(?s)a.{0,2}?b",
    r"(?<=ab)c",
    r"ab(?=c)|bca",
    r"a\Bb",
    r"(?-i:A)b|[b-c]{3}",
    r"a(?#comment)(?:b(?:c|a{1,2})){1,3}",
    r"[\]^-]a",
    r"(?a)\w{2}\s",
]


@pytest.mark.parametrize("pattern", OWN)
@settings(max_examples=150)
@given(text=st.text("abcA ^]\n", max_size=30), data=st.data())
def test_pieces_give_what_the_whole_gives(pattern: str, text: str, data: st.DataObject):
    patterns = Patterns([("<>", pattern, None)], 256)
    whole = redacted(text, patterns)
    assert whole == re.sub(pattern, "<>", text)
    assert in_pieces(text, patterns) == whole
    places = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=5)))
    pieces = [text[start:end] for start, end in zip([0, *places], [*places, len(text)], strict=True)]
    assert in_pieces(pieces, patterns) == whole


PIECES = 'a@b|.co|m| |4111|1111|-|5|12|3|sk-|abcdefgh|DE89|3704|0044|00|+1|(555)|123|4567|.|10|\n|"|é|_|AKIA|6789|,'
LIKELY = st.lists(st.sampled_from(PIECES.split("|")), max_size=25)


@settings(max_examples=400)
@given(pieces=LIKELY)
def test_built_in_patterns_in_pieces(pieces: list[str]):
    whole = redacted("".join(pieces))
    assert in_pieces(pieces) == whole
    assert in_pieces("".join(pieces)) == whole


@settings(max_examples=300)
@given(pieces=LIKELY)
def test_no_more_is_held_back_than_a_match_may_have(pieces: list[str]):
    scanner = Plain(ALL)
    for piece in pieces:
        scanner.feed(piece)
        assert len(scanner._text) - scanner._at <= 256


def test_what_can_be_no_match_goes_on_at_once():
    scanner = Plain(ALL)
    assert scanner.feed("The quick ") == "The quick "
    assert not scanner.pending
    assert scanner.feed("brown") == ""
    assert scanner.feed(" fox.\n") == "brown fox.\n"


def test_the_longest_of_several_that_begin_together_counts():
    patterns = Patterns([("<1>", "ab", None), ("<2>", "abc{1,2}", None)], 256)
    assert in_pieces("abccab", patterns) == "<2><1>"


# JSON text.


def arguments(text: str, patterns: Patterns = ALL) -> str:
    whole = in_pieces([text], patterns, Arguments)
    assert in_pieces(text, patterns, Arguments) == whole
    for at in range(len(text)):
        assert in_pieces((text[:at], text[at:]), patterns, Arguments) == whole
    return whole


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"to": "bob@x.com", "n": 1}', '{"to": "[email]", "n": 1}'),
        (r'{"to":"line\nbob@x.com\n"}', r'{"to":"line\n[email]\n"}'),
        (r'{"to":"bob\u0040x.com"}', '{"to":"[email]"}'),
        (r'{"to":"\"bob@x.com\""}', r'{"to":"\"[email]\""}'),
        (r'{"path":"C:\\bob@x.com"}', r'{"path":"C:\\[email]"}'),
        (r'{"a":"\u00e9\/\ud83d\ude00","b":[]}', r'{"a":"\u00e9\/\ud83d\ude00","b":[]}'),
        ('{"bob@x.com": true}', '{"[email]": true}'),
        ('{"card":4111111111111111}', '{"card":"[credit_card]"}'),
        ('{"card": 4111111111111111 , "x": -1.5e3}', '{"card": "[credit_card]" , "x": -1.5e3}'),
        ("4111111111111111", '"[credit_card]"'),
        ('["a@b.co","a@b.co"]', '["[email]","[email]"]'),
        ('{"a":"bob@x","b":".com"}', '{"a":"bob@x","b":".com"}'),
        ('{"a":"unfinished bob@x.com', '{"a":"unfinished [email]'),
        ('{"a":"cut \\', '{"a":"cut \\'),
        ('{"a":"cut \\u00', '{"a":"cut \\u00'),
        ('{"a":"wrong \\uZZ\\q bob@x.com"}', '{"a":"wrong \\uZZ\\q [email]"}'),
        ("{'a': 'bob@x.com'}", "{'a': \"'[email]'\"}"),
        ("", ""),
    ],
)
def test_arguments(text: str, expected: str):
    assert arguments(text) == expected


def test_a_replacement_with_quotes_stays_json():
    plugin = Redact(Config(replacement='"\\{name}"\n'))
    replaced = arguments('{"a":"x bob@x.com","b":4111111111111111}', plugin._patterns)
    assert orjson.loads(replaced) == {"a": 'x "\\email"\n', "b": '"\\credit_card"\n'}


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=12) | LIKELY.map("".join),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)


def strings_of(value: object) -> object:
    """What the redaction of a decoded value is."""
    if isinstance(value, str):
        return redacted(value)
    if isinstance(value, list):
        return [strings_of(item) for item in value]
    if isinstance(value, dict):
        return {redacted(key): strings_of(item) for key, item in value.items()}
    if isinstance(value, int) and not isinstance(value, bool):
        replaced = redacted(str(value))
        return value if replaced == str(value) else replaced
    return value


@settings(max_examples=300)
@given(value=VALUES, ascii_only=st.booleans(), data=st.data())
def test_arguments_stay_json_with_redacted_strings(value: object, ascii_only: bool, data: st.DataObject):
    text = json.dumps(value, ensure_ascii=ascii_only)
    places = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=4)))
    pieces = [text[start:end] for start, end in zip([0, *places], [*places, len(text)], strict=True)]
    replaced = in_pieces(pieces, ALL, Arguments)
    assert json.loads(replaced) == strings_of(value)
    if strings_of(value) == value:
        assert replaced == text
