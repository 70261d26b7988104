"""From a parsed head to what the gateway makes of it."""

from __future__ import annotations

import pytest
from fakes import RawClient, gateway, run
from hypothesis import given, settings
from hypothesis import strategies as st
from tailrace.proxy.fault import Reject
from tailrace.proxy.head import RequestHead
from tailrace.proxy.intake import check_json_type, check_length, read_head, split_target, without_offer

HOST = (b"Host", b"a")


def head(*lines: tuple[bytes, bytes], version: str = "1.1", keep: frozenset[bytes] = frozenset()) -> RequestHead:
    return read_head("POST", b"/v1/models?x=1", [HOST, *lines], version, keep)


def refusal(*lines: tuple[bytes, bytes], version: str = "1.1") -> int:
    with pytest.raises(Reject) as refused:
        head(*lines, version=version)
    return refused.value.fault.status


def test_a_head_keeps_what_crosses_in_its_spelling() -> None:
    found = head((b"Accept", b"x"), (b"AUTHORIZATION", b"Bearer k"), (b"X-Odd", b"\xe9 y"), (b"x-request-id", b"mine"))
    assert found.forwarded == b"Accept: x\r\nX-Odd: \xe9 y\r\n"
    assert (found.path, found.query, found.target) == ("/v1/models", b"x=1", b"/v1/models?x=1")
    assert found.get(b"authorization") == b"Bearer k"


def test_credentials_cross_where_they_are_named() -> None:
    keep = frozenset({b"x-tenant-token"})
    found = head((b"X-Tenant-Token", b"t"), (b"Authorization", b"k"), keep=keep)
    assert found.forwarded == b"X-Tenant-Token: t\r\n"


def test_all_connection_headers_count() -> None:
    found = head((b"Connection", b"x-a"), (b"X-A", b"1"), (b"X-B", b"2"), (b"X-C", b"3"), (b"connection", b"x-b"))
    assert found.forwarded == b"X-C: 3\r\n"


def test_the_host_must_come_exactly_once() -> None:
    assert refusal(HOST) == 400
    with pytest.raises(Reject):
        read_head("GET", b"/", [], "1.1", frozenset())
    assert read_head("GET", b"/", [], "1.0", frozenset()).path == "/"


def test_only_one_chunked_is_a_coding() -> None:
    chunked = (b"Transfer-Encoding", b"Chunked")
    head(chunked)
    assert refusal(chunked, chunked) == 400
    assert refusal(chunked, version="1.0") == 400
    assert refusal((b"transfer-encoding", b"gzip, chunked")) == 400
    assert refusal((b"transfer-encoding", b"identity")) == 400


def test_expectations() -> None:
    assert head((b"Expect", b"100-Continue")).expects_continue
    assert not head((b"Expect", b"100-continue"), version="1.0").expects_continue
    assert not head().expects_continue
    assert refusal((b"Expect", b"200-ok")) == 417


@pytest.mark.parametrize("name", [b"Content-Type", b"content-encoding"])
def test_a_body_is_described_once(name: bytes) -> None:
    assert refusal((name, b"a"), (name.upper(), b"a")) == 400
    head((b"accept", b"a"), (b"accept", b"b"))


@pytest.mark.parametrize(
    ("lines", "plain"),
    [
        ([], True),
        ([(b"Content-Type", b"application/json")], True),
        ([(b"Content-Type", b"application/json; charset=utf-8")], True),
        ([(b"Content-Type", b"application/json"), (b"Content-Encoding", b"gzip")], False),
        ([(b"Content-Type", b"text/plain")], False),
    ],
)
def test_the_usual_body_is_known_by_its_head(lines: list[tuple[bytes, bytes]], plain: bool) -> None:
    assert head(*lines).plain_json is plain


@pytest.mark.parametrize("value", [b"0", b"7", b"1000"])
def test_plain_lengths(value: bytes) -> None:
    check_length(value, 1000)


@pytest.mark.parametrize(
    ("value", "status"),
    [
        (b"", 400),
        (b"-1", 400),
        (b"+1", 400),
        (b"01", 400),
        (b"1 ", 400),
        (b"1" * 16, 400),
        (b"1001", 413),
        (b"\xb2", 400),
    ],
)
def test_other_lengths(value: bytes, status: int) -> None:
    with pytest.raises(Reject) as refused:
        check_length(value, 1000)
    assert refused.value.fault.status == status


@pytest.mark.parametrize(
    ("url", "path", "target"),
    [
        (b"/", "/", b"/"),
        (b"/v1/models/a%2Fb", "/v1/models/a/b", b"/v1/models/a/b"),
        (b"/%76%31/models?a=%2e%2e", "/v1/models", b"/v1/models?a=%2e%2e"),
        (b"/a?b?c", "/a", b"/a?b?c"),
        (b"/.well-known/..x/x..", "/.well-known/..x/x..", b"/.well-known/..x/x.."),
        (b"*", "*", b"*"),
    ],
)
def test_one_path_for_routing_and_forwarding(url: bytes, path: str, target: bytes) -> None:
    found = split_target(url)
    assert (found[0], found[2]) == (path, target)


@given(
    st.binary(max_size=30)
    | st.lists(st.sampled_from([b"/", b".", b"%2e", b"%2f", b"%", b"a", b"\\", b"?"])).map(b"".join)
)
@settings(max_examples=200)
def test_an_accepted_path_has_one_meaning(url: bytes) -> None:
    try:
        path, query, target = split_target(url)
    except Reject as refused:
        assert refused.fault.status == 400
        return
    assert path == "*" or path.startswith("/")
    assert path.isascii()
    assert path.isprintable()
    assert not {"", ".", ".."} & set(path[1:].split("/")[:-1])
    assert path.rpartition("/")[2] not in (".", "..")
    assert not set('%\\#" <>') & set(path)
    assert target.partition(b"?")[0].decode() == path
    # What was made of it means the same to whoever reads it next.
    assert split_target(target)[0] == path
    assert query == url.partition(b"?")[2]


@pytest.mark.parametrize(
    "kind", [b"application/json", b"", b"Application/JSON ; charset=UTF-8", b"application/x+json", b";"]
)
def test_json_types(kind: bytes) -> None:
    check_json_type(kind)


@pytest.mark.parametrize(
    "kind", [b"text/json", b"application/jsonx", b"application/json; charset=utf-16", b"json", b";"]
)
def test_other_types(kind: bytes) -> None:
    if kind == b";":
        check_json_type(kind)
        return
    with pytest.raises(Reject) as refused:
        check_json_type(kind)
    assert refused.value.fault.status == 415


def test_a_head_without_its_offer() -> None:
    found = head((b"Upgrade", b"h2c"), (b"Connection", b"Upgrade"), (b"HTTP2-Settings", b"x"), (b"X-A", b"\xe9"))
    assert without_offer(found, b"/v1/models?x=1", b"7", close=True) == (
        b"POST /v1/models?x=1 HTTP/1.1\r\nHost: a\r\nX-A: \xe9\r\ncontent-length: 7\r\nconnection: close\r\n\r\n"
    )
    assert b"content-length" not in without_offer(found, b"/", b"", close=False)


@pytest.mark.parametrize(
    ("target", "path"),
    [
        (b"/v1/models/%C3%BCn%C3%AF", "/v1/models/ünï"),
        (b"/v1/models/org/%C3%BC?x=1", "/v1/models/org/ü"),
        (b"/v1/models/a%20b", "/v1/models/a b"),
        (b"/v1/models/org%2Fa%20%5Bb%5D", "/v1/models/org/a [b]"),
        (b"/v1/models/a%23b%3Fc%22?x=%20", '/v1/models/a#b?c"'),
    ],
)
def test_a_model_may_have_any_name(target: bytes, path: str) -> None:
    assert split_target(target) == (path, target.partition(b"?")[2], target)


@pytest.mark.parametrize(
    "target",
    [b"/v1/%C3%BC", b"/v1/models/%FF", b"/v1/models/\xc3\xbc", b"/v1/models/%C3%BC/../x", b"/v1/models/%C3%BC%E2%80%AE",
     b"/v1/models/%C3%BC%0A", b"/v1/models//%C3%BC", b"/v1/models/../%C3%BC", b"/v1/a%20b", b"/v1/models%20",
     b"/v1/models/a%2520b", b"/v1/models/a%0Ab", b"/v1/models/a%20b/%2E%2E", b"/v1/models/..%5Ca", b"/v1/models/a%00",
     b"/v1/models/a b", b"/v1/models/[a]", b"/v1/models/a%20[b]", b"/v1/models/a%20b//c", b"/v1/models/a%20%"],
)  # fmt: skip
def test_no_other_path_has(target: bytes) -> None:
    with pytest.raises(Reject):
        split_target(target)


def test_a_model_is_shown_whatever_its_name() -> None:
    async def main() -> None:
        yaml = "listen: 127.0.0.1:0\nmodels: {ünï: &it {workers: ['http://127.0.0.1:1']}, a b: *it}\n"
        async with gateway(yaml) as process, RawClient(process.doors[0].shown) as client:
            got = await client.get("/v1/models/%C3%BCn%C3%AF")
            assert (got.status, got.json()["id"]) == (200, "ünï")
            assert (await client.get("/v1/models/%C3%BC")).status == 404
            got = await client.get("/v1/models/a%20b")
            assert (got.status, got.json()["id"]) == (200, "a b")
            got = await client.get("/v1/models/a%20c")
            assert (got.status, got.json()["error"]["code"]) == (404, "model_not_found")

    run(main())
