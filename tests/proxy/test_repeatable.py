"""HDG-03: what may be asked twice."""

from __future__ import annotations

from types import SimpleNamespace

import orjson
import pytest
from tailrace.proxy.body import JsonBody
from tailrace.proxy.fault import connection_lost
from tailrace.proxy.repeatable import repeatable, seen

pytestmark = pytest.mark.interpreted


def asked(body=None, route="chat", method="POST", pinned=False, **headers):
    named = {name.encode().replace(b"_", b"-"): value for name, value in headers.items()}
    return SimpleNamespace(
        head=SimpleNamespace(method=method, get=named.get),
        route=SimpleNamespace(name=route, pinned=pinned),
        body=None if body is None else JsonBody(orjson.dumps(body), 32),
    )


@pytest.mark.parametrize(
    ("call", "may"),
    [
        (asked({"model": "m"}), True),
        (asked({"model": "m", "input": "x"}, "embeddings"), True),
        (asked({"model": "m", "store": False, "background": False}, "responses"), True),
        (asked({"model": "m", "store": True}, "responses"), False),
        (asked({"model": "m", "store": True}), False),
        (asked({"model": "m", "background": True}, "responses"), False),
        (asked({"tools": [{"type": "function", "function": {"name": "f"}}]}), True),
        (asked({"tools": [{"name": "f", "input_schema": {}}]}, "messages"), True),
        (asked({"tools": [{"type": "function", "name": "f"}, {"type": "mcp"}]}, "responses"), False),
        (asked({"tools": "odd"}), True),
        (asked(None, "transcriptions"), False),
        (asked(None, "translations"), False),
        (asked({"model": "m"}, "pass_through"), False),
        (asked(None, "pass_through", "GET"), True),
        (asked({}, "responses", "POST", pinned=True), False),
        (asked(None, "responses", "GET", pinned=True), True),
        (asked(None, "responses", "DELETE", pinned=True), False),
        (asked({"model": "m"}, x_tailrace_idempotent=b"false"), False),
        (asked({"model": "m"}, x_tailrace_idempotent=b" False "), False),
        (asked({"model": "m"}, x_tailrace_idempotent=b"true"), True),
    ],
)
def test_HDG_03_what_has_effects_is_not_repeated(call, may):
    assert repeatable(call) is may


def attempt(sent_ns=1, fault=None):
    return SimpleNamespace(sent_ns=sent_ns, fault=fault)


@pytest.mark.parametrize(
    ("tries", "was"),
    [
        ([], False),
        ([attempt(0)], False),
        ([attempt()], True),
        ([attempt(1, connection_lost(sent=False))], False),
        ([attempt(1, connection_lost(sent=True))], True),
        ([attempt(1, connection_lost(sent=True)), attempt(0)], True),
    ],
)
def test_whether_a_worker_may_have_seen_it(tries, was):
    assert seen(tries) is was
