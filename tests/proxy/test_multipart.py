"""Forms read in place: every part is found where it lies, and nothing else is taken for one."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tailrace.proxy.fault import Reject
from tailrace.proxy.multipart import MAX_PARTS, Form

NAMES = st.from_regex(r"\A[a-z_]{1,8}(\[\])?\Z").map(str.encode)
BOUNDARIES = st.from_regex(r"\A[0-9A-Za-z'()+_,./:=?-][0-9A-Za-z'()+_,./:=? -]{0,30}[0-9A-Za-z]\Z").map(str.encode)
BINARY = st.binary(max_size=40) | st.lists(st.sampled_from([b"\r\n", b"--", b"\r\n--", b"x", b"\0"])).map(b"".join)


def written(parts: list[tuple[bytes, bytes]], boundary: bytes) -> bytes:
    lines = [
        b'--%b\r\nContent-Disposition: form-data; name="%b"\r\n\r\n%b\r\n' % (boundary, name, content)
        for name, content in parts
    ]
    return b"".join(lines) + b"--%b--\r\n" % boundary


def kind(boundary: bytes) -> bytes:
    return b'multipart/form-data; boundary="%b"' % boundary


@given(st.dictionaries(NAMES, BINARY, max_size=5), BOUNDARIES, BINARY)
def test_every_part_is_found_where_it_lies(parts: dict[bytes, bytes], boundary: bytes, epilogue: bytes) -> None:
    assume(all(b"--" + boundary not in content for content in parts.values()))
    raw = written(list(parts.items()), boundary) + epilogue
    for data in (raw, b"\r\n" + raw, b"\r\n\r\n" + raw, b"a preamble\r\n" + raw):
        form = Form.read(data, kind(boundary))
        assert {name: data[start:end] for name, (start, end) in form.spans.items()} == parts


@given(st.dictionaries(NAMES, BINARY, min_size=1, max_size=5), BOUNDARIES, st.binary(max_size=20))
def test_one_field_is_replaced_and_no_other_byte(parts: dict[bytes, bytes], boundary: bytes, value: bytes) -> None:
    assume(all(b"--" + boundary not in content for content in [*parts.values(), value]))
    form = Form.read(written(list(parts.items()), boundary), kind(boundary))
    for name in parts:
        assert form.replaced(name, value) == written(list({**parts, name: value}.items()), boundary)


@given(st.dictionaries(NAMES, BINARY, max_size=3), BOUNDARIES, st.sampled_from([b"", b"\r\n", b"a preamble\r\n"]))
def test_a_field_that_is_not_there_is_added(parts: dict[bytes, bytes], boundary: bytes, preamble: bytes) -> None:
    assume(b"added" not in parts)
    assume(all(b"--" + boundary not in content for content in parts.values()))
    form = Form.read(preamble + written(list(parts.items()), boundary), kind(boundary))
    again = Form.read(form.replaced(b"added", b"value"), kind(boundary))
    assert again.text(b"added") == "value"
    assert again.raw.startswith(preamble + b"--" + boundary)
    assert {name: again.raw[start:end] for name, (start, end) in again.spans.items()} == {**parts, b"added": b"value"}


@given(st.binary(max_size=200) | st.lists(st.sampled_from([b"--b", b"\r\n", b"--", b'; name="x"', b"c"])).map(b"".join))
def test_no_bytes_break_the_reading(raw: bytes) -> None:
    try:
        Form.read(raw, b"multipart/form-data; boundary=b")
    except Reject as refusal:
        assert refusal.fault.status == 400


@given(st.text(max_size=60))
def test_no_content_type_breaks_the_reading(text: str) -> None:
    try:
        Form.read(b"", b"multipart/form-data;" + text.encode())
    except Reject as refusal:
        assert refusal.fault.status == 400


@pytest.mark.parametrize(
    ("head", "name"),
    [
        (b'Content-Disposition: form-data; name="model"', b"model"),
        (b"content-disposition:form-data;name=model", b"model"),
        (b'Content-Disposition: form-data; filename="a; name=\\"x\\""; name="model"', b"model"),
        (b'Content-Type: text/plain; name="x"\r\nContent-Disposition: form-data; name="model"', b"model"),
        (b'Content-Disposition: form-data; NAME="model" ;', b"model"),
        (b"X-Other: a", None),
        (b"Content-Disposition: form-data", None),
    ],
)
def test_the_name_comes_from_the_disposition_alone(head: bytes, name: bytes | None) -> None:
    form = Form.read(b"--b\r\n" + head + b"\r\n\r\nm\r\n--b--", b"multipart/form-data; boundary=b")
    assert list(form.spans) == ([] if name is None else [name])


def test_a_repeated_field_can_be_passed_on_but_not_read() -> None:
    form = Form.read(written([(b"x[]", b"1"), (b"x[]", b"2"), (b"y", b"3")], b"b"), kind(b"b"))
    assert form.text(b"y") == "3"
    assert form.text(b"absent") is None
    with pytest.raises(Reject, match="twice"):
        form.text(b"x[]")


def test_the_number_of_parts_is_bounded() -> None:
    parts = [(b"x%d" % n, b"") for n in range(MAX_PARTS + 1)]
    assert len(Form.read(written(parts[:-1], b"b"), kind(b"b")).spans) == MAX_PARTS
    with pytest.raises(Reject, match="more than"):
        Form.read(written(parts, b"b"), kind(b"b"))
