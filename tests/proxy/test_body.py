"""Bodies read without building them: what is taken, what is refused, and what an edit leaves as it was."""

import json
from typing import Any

import orjson
import pytest
from fakes import Upstream, gateway, json_answer, run, yaml_for
from hypothesis import example, given
from hypothesis import strategies as st
from tailrace.proxy.body import MAX_FIELDS, JsonBody
from tailrace.proxy.fault import Reject
from tailrace.proxy.skim import SHORTEST
from tailrace.proxy.testing.client import RawClient

DEEP = 10_000

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
KEYS = st.sampled_from(["model", "stream", "messages", "é", 'a"b', "a\\", "", "模型"]) | TEXT
NUMBERS = st.integers(-(10**25), 10**25) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT | st.sampled_from(["[", "}", '{"', "\\", '"']),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)
SPACES = st.text(" \t\r\n", max_size=2)


class Spelling:
    """Writes JSON with spacing and escapes drawn at random."""

    def __init__(self, draw: Any) -> None:
        self._draw = draw

    def space(self) -> str:
        return str(self._draw(SPACES))

    def text(self, value: str) -> str:
        return json.dumps(value, ensure_ascii=self._draw(st.booleans()))

    def value(self, value: Any) -> str:
        if isinstance(value, dict):
            return self.object(list(value.items()))
        if isinstance(value, list):
            return "[" + ",".join(self.padded(self.value(item)) for item in value) + self.space() + "]"
        return self.text(value) if isinstance(value, str) else json.dumps(value)

    def padded(self, text: str) -> str:
        return self.space() + text + self.space()

    def object(self, items: list[tuple[str, Any]]) -> str:
        entries = (self.padded(self.text(key)) + ":" + self.padded(self.value(value)) for key, value in items)
        return "{" + ",".join(entries) + self.space() + "}"


@st.composite
def spelled(draw: Any) -> tuple[dict[str, Any], bytes]:
    """An object and one way to write it."""
    value = draw(st.dictionaries(KEYS, VALUES, max_size=5))
    spelling = Spelling(draw)
    return value, draw(short_or_long(spelling.padded(spelling.object(list(value.items()))).encode()))


def short_or_long(raw: bytes) -> st.SearchStrategy[bytes]:
    """The same JSON as it is, and long enough to be skimmed."""
    return st.sampled_from([raw, raw.lstrip(b" \t\r\n") + b" " * SHORTEST])


def text_of(body: JsonBody, name: str) -> bytes:
    written = body.written(name)
    assert written is not None
    return bytes(written)


@given(spelled())
@example(({}, b"{}"))
@example(({"a": 1}, b'{"a":1}'))
def test_fields_are_what_a_parser_finds(case: tuple[dict[str, Any], bytes]) -> None:
    value, raw = case
    body = JsonBody(raw, DEEP)
    assert {name: json.loads(text_of(body, name)) for name in value} == value
    assert body.written("absent") is None
    assert body.render() is raw
    assert not body.edited


@given(spelled(), st.dictionaries(KEYS, VALUES, max_size=3), st.data())
def test_an_edit_changes_its_field_and_no_other_byte(
    case: tuple[dict[str, Any], bytes], changes: dict[str, Any], data: st.DataObject
) -> None:
    value, raw = case
    removed = data.draw(st.sets(st.sampled_from(sorted(value)), max_size=2)) if value else set()
    body = JsonBody(raw, DEEP)
    before = {name: text_of(body, name) for name in value}
    for name, new in changes.items():
        body.edit(name, orjson.dumps(str(new)))
    for name in removed:
        body.edit(name, None)
    wanted = {**value, **{name: str(new) for name, new in changes.items()}}
    wanted = {name: field for name, field in wanted.items() if name not in removed}
    rendered = body.render()
    assert json.loads(rendered) == wanted
    again = JsonBody(rendered, DEEP)
    for name in set(before) - set(changes) - removed:
        assert text_of(again, name) == before[name]
    assert {name for name in {*value, *changes} if body.has(name)} == set(wanted)


@given(spelled(), KEYS)
def test_an_edit_for_one_time_is_not_kept(case: tuple[dict[str, Any], bytes], name: str) -> None:
    value, raw = case
    body = JsonBody(raw, DEEP)
    assert json.loads(body.render({name: b"7"})) == {**value, name: 7}
    assert body.render() is raw


@given(spelled(), KEYS)
def test_edits_can_be_undone(case: tuple[dict[str, Any], bytes], name: str) -> None:
    _, raw = case
    body = JsonBody(raw, DEEP)
    kept = body.snapshot()
    body.edit(name, b"7")
    body.edit("other", None)
    assert body.edited
    body.restore(kept)
    assert body.render() is raw
    assert not body.edited


@st.composite
def with_a_key_twice(draw: Any) -> bytes:
    items = draw(st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=4))
    twice = draw(st.sampled_from(items))[0]
    items.insert(draw(st.integers(0, len(items))), (twice, draw(VALUES)))
    return draw(short_or_long(Spelling(draw).object(items).encode()))  # type: ignore[no-any-return]


@given(with_a_key_twice())
@example(b'{"a":1,"a":1}')
@example(b'{"a":12,"a":1}')
@example(b'{"a":1,"a":12}')
@example(b'{"a":1,"\\u0061":1}')
@example(b'{"a" :1, "a": 1 }')
@example('{"é":1,"é":1}'.encode())
def test_a_key_that_comes_twice_is_refused(raw: bytes) -> None:
    with pytest.raises(Reject, match="twice") as refusal:
        JsonBody(raw, DEEP)
    assert refusal.value.fault.status == 400


def depth_of(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth_of, value.values()), default=0)
    return 1 + max(map(depth_of, value), default=0) if isinstance(value, list) else 0


@given(spelled())
def test_depth_is_exact(case: tuple[dict[str, Any], bytes]) -> None:
    value, raw = case
    depth = depth_of(value)
    JsonBody(raw, depth)
    with pytest.raises(Reject, match="nested deeper"):
        JsonBody(raw, depth - 1)


@pytest.mark.parametrize("depth", [1, 7, 8, 9, 20, 127, 900])
@pytest.mark.parametrize("padding", [0, 20_000])
def test_depth_is_exact_in_large_bodies_and_deep_ones(depth: int, padding: int) -> None:
    fill = '[{"}]\\"' * (padding // 10)
    nested: Any = "x"
    for level in range(depth - 1):
        nested = [nested] if level % 2 else {"k": nested, "[": fill[:10]}
    raw = json.dumps({"fill": fill, "a": nested}).encode()
    JsonBody(raw, depth)
    with pytest.raises(Reject, match="nested deeper"):
        JsonBody(raw, depth - 1)


@given(st.binary(max_size=60) | st.from_regex(rb'\A\{("[a-c\\\\"]*"|[0-9.eE+\-:,\[\]{}truefalsnN ])*\}\Z'))
def test_what_is_taken_is_json(raw: bytes) -> None:
    for each in (raw, raw + b" " * SHORTEST):
        taken_or_refused(each)


def taken_or_refused(raw: bytes) -> None:
    try:
        body = JsonBody(raw, DEEP)
    except Reject as refusal:
        assert refusal.fault.status == 400
        return
    value = json.loads(raw)
    assert all(body.has(name) for name in value)


@given(spelled(), st.integers(0, 400), st.sampled_from([b"", b"\x00", b"\xff", b"x", b",", b'"', b"}"]))
def test_damaged_json_is_refused_or_still_json(case: tuple[dict[str, Any], bytes], at: int, byte: bytes) -> None:
    _, raw = case
    at %= len(raw)
    damaged = raw[:at] + byte + raw[at + 1 :]
    try:
        JsonBody(damaged, DEEP)
    except Reject as refusal:
        assert refusal.fault.code == "invalid_request_error"
    else:
        json.loads(damaged)


def test_the_number_of_fields_is_bounded() -> None:
    fields = [f'"k{n}":1' for n in range(MAX_FIELDS + 1)]
    JsonBody(("{" + ",".join(fields[:-1]) + "}").encode(), 9)
    with pytest.raises(Reject, match="more than"):
        JsonBody(("{" + ",".join(fields) + "}").encode(), 9)


@pytest.mark.parametrize("colon", [":", " :", "\t:\n"])
def test_countless_fields_are_refused_before_they_are_built(colon: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def build(raw: bytes) -> None:
        raise AssertionError("a dictionary of them is built")

    monkeypatch.setattr("tailrace.proxy.body._decode", build)
    raw = ("{" + ",".join(f'"{n}"{colon}1' for n in range(60_000)) + "}").encode()
    with pytest.raises(Reject, match="more than"):
        JsonBody(raw, 9)


@pytest.mark.parametrize("name", ["messages", "prompt", "unknown"])
def test_a_large_body_may_have_any_number_of_quotes_where_its_bulk_is(name: str) -> None:
    bulk = ["a", "b"] * 40_000 if name != "unknown" else 'say "yes" ' * 60_000
    raw = json.dumps({"model": "m", name: bulk}).encode()
    assert json.loads(text_of(JsonBody(raw, 9), name)) == bulk


@pytest.mark.parametrize(("raw", "value"), [(b"true", True), (b"false", False), (b'"true"', False), (b"1", False)])
def test_a_flag_is_literally_true(raw: bytes, value: bool) -> None:
    body = JsonBody(b'{"stream": ' + raw + b"}", 9)
    assert body.flag("stream") is value
    assert body.flag("absent") is False


@pytest.mark.parametrize("raw", [b"1", b"null", b"[]", b"{}", b"true", b"1" * 5000])
def test_text_is_a_string_or_absent(raw: bytes) -> None:
    body = JsonBody(b'{"model":' + raw + b',"x":"\\u00e9"}', 9)
    assert body.text("x") == "é"
    assert body.text("absent") is None
    with pytest.raises(Reject) as refusal:
        body.text("model")
    assert refusal.value.fault.param == "model"


@pytest.mark.parametrize(
    ("field", "chain"),
    [
        (b'"model":"\xf6"', "[]"),
        (b'"model":"m","previous_response_id":"\xc3"', "[]"),
        (b'"model":"m","stream":true,"stream_options":{"\x99":true}', "[fuzz.needy:Needy]"),
        (b'"model":"m","max_tokens":1e999', "[{guard: {max_tokens: {cap: 5}}}]"),
    ],
)
def test_a_value_that_json_cannot_have_is_the_clients_fault(field: bytes, chain: str) -> None:
    path = "/v1/responses" if b"response_id" in field else "/v1/chat/completions"

    async def body() -> None:
        async with (
            Upstream(json_answer({})) as upstream,
            gateway(yaml_for(upstream, plugins=chain)) as process,
            RawClient(process.doors[0].shown) as client,
        ):
            answer = await client.post(path, b"{" + field + b"}")
            assert answer.status == 400
            assert answer.json()["error"]["type"] == "invalid_request_error"
            assert not upstream.requests

    run(body())
