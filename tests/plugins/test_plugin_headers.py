"""What the `headers` plugin changes, and what it refuses to."""

from __future__ import annotations

import pytest
from fakes import (
    CHAT,
    PATH,
    RawClient,
    Upstream,
    chat_answer,
    decoded,
    gateway,
    json_answer,
    run,
    sse_answer,
    stream_of,
    yaml_for,
)
from tailrace.proxy.config import ConfigError


def exchanged(config: str, headers: dict[str, str] | None = None, answer_headers: bytes = b"", body: dict = CHAT):
    """What the worker saw and what the client got."""

    async def main():
        script = json_answer(chat_answer("x"), headers=answer_headers)
        if body.get("stream"):
            script = sse_answer(stream_of(["x"]), headers=answer_headers)
        async with (
            Upstream(script) as upstream,
            gateway(yaml_for(upstream, plugins=f"- headers: {config}")) as process,
            RawClient(process.doors[0].shown) as client,
        ):
            answer = await client.post(PATH, body, headers)
            # The second request of a connection takes the changes from memory.
            await client.post(PATH, body, headers)
            unlabelled = [[pair for pair in seen.headers if pair[0] != "x-request-id"] for seen in upstream.requests]
            assert unlabelled[:1] == unlabelled[1:]
            return (upstream.requests[0] if upstream.requests else None), answer

    return run(main())


def test_request_headers():
    config = (
        "{request: {remove: [X-Gone], set: {X-Fixed: my, Authorization: Bearer team, X-New: '1'}, add: {x-more: b}}}"
    )
    headers = {"x-gone": "1", "X-FIXED": "theirs", "x-more": "one", "x-kept": "k", "authorization": "Bearer client"}
    seen, _ = exchanged(config, headers)
    values = {name.lower(): [v for n, v in seen.headers if n.lower() == name.lower()] for name, _ in seen.headers}
    assert "x-gone" not in values
    assert values["x-fixed"] == ["my"]
    assert values["x-new"] == ["1"]
    assert values["x-more"] == ["one", "b"]
    assert values["x-kept"] == ["k"]
    assert values["authorization"] == ["Bearer team"]
    assert values["content-length"] == [str(len(seen.body))]


def test_answer_headers_on_every_kind_of_answer():
    config = "{answer: {remove: [x-gone], set: {X-Fixed: mine}, add: {x-more: two}}}"
    worker = b"X-Gone: 1\r\nx-fixed: theirs\r\nX-More: one\r\nx-kept: k\r\n"
    for body, status in ((CHAT, 200), ({**CHAT, "stream": True}, 200), ({"model": "nope"}, 404)):
        _, answer = exchanged(config, None, worker, body)
        assert answer.status == status
        assert answer.head.all("x-fixed") == ["mine"]
        assert answer.header("x-gone") is None
        assert answer.head.all("x-more") == (["one", "two"] if status == 200 else ["two"])
        assert answer.header("x-kept") == ("k" if status == 200 else None)


def test_only_for_some_calls():
    config = "{request: {set: {x-a: '1'}}}\n  when: {route: [completions]}"
    seen, _ = exchanged(config)
    assert seen.header("x-a") is None
    seen, _ = exchanged(config.replace("completions", "chat"))
    assert seen.header("x-a") == "1"


def test_two_entries_follow_each_other():
    config = "{request: {set: {x-a: '1', x-b: '1'}}}\n- headers: {request: {remove: [x-a], add: {x-b: '2'}}}"
    seen, _ = exchanged(config)
    assert seen.header("x-a") is None
    assert [value for name, value in seen.headers if name == "x-b"] == ["1", "2"]


@pytest.mark.parametrize(
    ("config", "fault"),
    [
        ("{request: {set: {'a b': x}}}", "'a b' is no header name"),
        ("{request: {set: {'': x}}}", "'' is no header name"),
        ('{request: {set: {x-a: "one\\r\\nx-b: two"}}}', "the value of 'x-a' must be one line"),
        ('{answer: {add: {x-a: "one\\ntwo"}}}', "the value of 'x-a' must be one line"),
        ('{answer: {add: {x-a: "\\u20ac"}}}', "the value of 'x-a' must be one line"),
        ("{request: {set: {Host: x}}}", "'Host' cannot be changed"),
        ("{request: {remove: [Content-Length]}}", "'Content-Length' cannot be changed"),
        ("{answer: {set: {transfer-encoding: chunked}}}", "'transfer-encoding' cannot be changed"),
        ("{answer: {set: {connection: close}}}", "'connection' cannot be changed"),
        ("{request: {set: {x-request-id: x}}}", "'x-request-id' cannot be changed"),
        ("{request: {set: {X-Forwarded-For: x}}}", "'X-Forwarded-For' cannot be changed"),
        ("{request: {add: {X-Api-Key: x}}}", "'X-Api-Key' is a credential"),
        ("{request: {set: {x-a: '1', X-A: '2'}}}", "'X-A' is the same header as 'x-a'"),
    ],
)
def test_what_is_refused(config: str, fault: str):
    with pytest.raises(ConfigError) as raised:
        decoded(yaml_for("http://127.0.0.1:1", plugins=f"- headers: {config}"))
    assert fault in str(raised.value)
