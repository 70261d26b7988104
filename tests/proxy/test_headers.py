"""Which headers cross, in each direction."""

from __future__ import annotations

import pytest
from fakes import RawClient, Upstream, chat_answer, gateway, json_answer, run, yaml_for
from hypothesis import given
from hypothesis import strategies as st
from tailrace.proxy import headers
from tailrace.proxy.headers import answer_rule, listed, request_rule, request_rules, safe_value, without_named

REQUEST = {
    headers.PASS: [
        "Accept", "Content-Type", "User-Agent", "traceparent", "OpenAI-Project", "anthropic-version",
        "X-Stainless-Lang",
        "Idempotency-Key", "CF-Ray", "x-geometry", "x-token-count", "x-session-id", "secretary",
    ],
    headers.DROP: [
        "Keep-Alive", "Proxy-Connection", "TE", "Trailer", "Upgrade", "HTTP2-Settings", "Accept-Encoding",
        "Content-Encoding", "Forwarded", "X-Real-IP", "X-Forwarded-For", "X-FORWARDED-anything",
        "X-Tailrace-Anything", "CF-Connecting-IP",
        "CF-IPCountry", "CF-IPCity", "CF-Region", "CF-Timezone", "X-Vercel-IP-Country", "CloudFront-Viewer-Country",
        "X-Geo-Country", "X-AppEngine-Country", "X-Country-Code", "X-Client-Geo-Location",
    ],
    headers.CREDENTIAL: [
        "Authorization", "Proxy-Authorization", "Cookie", "api-key", "X-API-Key", "apikey", "X-Goog-Api-Key",
        "Ocp-Apim-Subscription-Key", "X-Auth-Token", "X-Client-Secret", "X-Original-Authorization",
        "X-Goog-Iap-Jwt-Assertion", "X-Amzn-Oidc-Accesstoken", "X-Access-Key",
    ],
    headers.HOST: ["Host"],
    headers.LENGTH: ["Content-Length"],
    headers.EXPECT: ["Expect"],
    headers.CONNECTION: ["Connection"],
    headers.CODING: ["Transfer-Encoding"],
    headers.REQUEST_ID: ["X-Request-Id"],
    headers.VIA: ["Via"],
}  # fmt: skip
ANSWER = {
    headers.PASS: ["Content-Type", "openai-processing-ms", "X-RateLimit-Reset", "Retry-After", "Content-Encoding"],
    headers.DROP: [
        "Server", "Set-Cookie", "Set-Cookie2", "Strict-Transport-Security", "Access-Control-Allow-Origin", "Alt-Svc",
        "Clear-Site-Data", "Content-Security-Policy", "Report-To", "NEL", "WWW-Authenticate", "Proxy-Authenticate",
        "Keep-Alive", "Upgrade", "Trailer", "X-Tailrace-Anything", "Host", "Expect",
    ],
    headers.BAD: ["a b", "", "x:", "na\x00me", "caf\xe9", "x\t", "(x)"],
    headers.LENGTH: ["CONTENT-LENGTH"],
    headers.CODING: ["transfer-encoding"],
    headers.CONNECTION: ["Connection"],
    headers.REQUEST_ID: ["x-request-id"],
}  # fmt: skip


def flat(table: dict[int, list[str]]) -> list[tuple[bytes, int]]:
    return [(name.encode("latin-1"), rule) for rule, names in table.items() for name in names]


@pytest.mark.parametrize(("name", "rule"), flat(REQUEST))
def test_headers_of_clients(name: bytes, rule: int) -> None:
    assert {request_rule(spelled) for spelled in (name, name.lower(), name.upper(), name.title())} == {rule}


@pytest.mark.parametrize(("name", "rule"), flat(ANSWER))
def test_headers_of_workers(name: bytes, rule: int) -> None:
    assert answer_rule(name) == (rule, name.lower())


def test_the_memory_is_bounded_and_begins_anew() -> None:
    for n in range(5000):
        request_rule(b"x-%d" % n)
        assert len(request_rules) <= 2048
    assert request_rules[b"x-4999"] == headers.PASS
    long = b"x-" + b"y" * 1000 + b"-token"
    assert request_rule(long) == headers.CREDENTIAL
    assert long not in request_rules


LINES = b"Accept: a\r\nX-Hop: b\r\nx-hop-more: c\r\nTrace: x-hop\r\n"


@pytest.mark.parametrize(
    ("connection", "left"),
    [
        (b"keep-alive", LINES),
        (b"close", LINES),
        (b"", LINES),
        (b" , ,", LINES),
        (b"x-hop", b"Accept: a\r\nx-hop-more: c\r\nTrace: x-hop\r\n"),
        (b"Keep-Alive , X-HOP,\tTrace", b"Accept: a\r\nx-hop-more: c\r\n"),
        (b"accept, x-hop, x-hop-more, trace", b""),
    ],
)
def test_headers_that_the_connection_header_names_stay_behind(connection: bytes, left: bytes) -> None:
    assert without_named(LINES, connection) == left


@pytest.mark.parametrize("offer", ["", "Upgrade, HTTP2-Settings, ", "keep-alive, upgrade ,"])
def test_they_stay_behind_in_both_directions_whatever_is_offered(offer: str) -> None:
    async def main() -> None:
        good = json_answer(chat_answer("hi"), headers=b"connection: x-back, keep-alive\r\nx-back: a\r\nx-kept: b\r\n")
        told = {"connection": offer + "X-Hop", "x-hop": "private", "x-kept": "a", "x-also": "b"}
        if offer:
            told |= {"upgrade": "h2c", "http2-settings": "AAA"}
        async with Upstream(good) as upstream, gateway(yaml_for(upstream)) as process:
            async with RawClient(process.doors[0].shown) as client:
                for _ in range(2):
                    got = await client.post("/v1/chat/completions", {"model": "m", "messages": []}, told)
                    assert (got.status, got.header("x-back"), got.header("x-kept")) == (200, None, "b")
                    seen = upstream.requests[-1]
                    assert [seen.header(name) for name in ("x-hop", "x-kept", "x-also")] == [None, "a", "b"]
                    assert seen.header("upgrade") is seen.header("connection") is None

    run(main())


def test_the_first_value_of_a_list() -> None:
    pairs = [(b"a", b"1"), (b"b", b"2"), (b"b", b"3")]
    assert (listed(pairs, b"b"), listed(pairs, b"c")) == (b"2", None)


@given(st.text(max_size=300), st.integers(0, 300))
def test_any_text_becomes_one_printable_line(text: str, limit: int) -> None:
    value = safe_value(text, limit)
    assert all(0x20 <= byte < 0x7F for byte in value)
    assert len(value) <= 3 * limit
