"""What browsers are told by the `cors` plugin."""

from __future__ import annotations

import pytest
from fakes import CHAT, PATH, RawClient, Upstream, answer, chat_answer, decoded, gateway, json_answer, run, yaml_for
from tailrace.proxy.config import ConfigError

APP = "https://app.example"
LISTED = "{origins: ['https://app.example', 'https://*.team.example', 'http://localhost:*']}"


def told(config: str, origin: str | None, *, method: str = "POST", asked: dict[str, str] | None = None, **how):
    """The answer to one request; `how` may give the body, the path and what the worker says."""

    async def main():
        async with (
            Upstream(how.get("script") or json_answer(chat_answer("x"))) as upstream,
            gateway(yaml_for(upstream, plugins=f"- cors: {config}")) as process,
            RawClient(process.doors[0].shown) as client,
        ):
            headers = (asked or {}) | ({"Origin": origin} if origin else {})
            path = how.get("path", PATH)
            if method == "POST":
                return await client.post(path, how.get("body", CHAT), headers)
            await client.request(method, path, b"", headers)
            return await client.read_answer()

    return run(main())


def preflight(config: str, origin: str, headers: str | None = "authorization,content-type", method: str = "POST"):
    asked = {"Access-Control-Request-Method": method}
    if headers is not None:
        asked["Access-Control-Request-Headers"] = headers
    return told(config, origin, method="OPTIONS", asked=asked)


def controls(answered) -> dict[str, str]:
    found = {name: value for name, value in answered.head.headers if name.startswith("access-control-")}
    assert len(found) == sum(name.startswith("access-control-") for name, _ in answered.head.headers)
    return found


def passed_through(config: str, origin: str | None):
    lines = (
        b"vary: Accept, origin\r\nVary: x-a\r\naccess-control-allow-origin: https://evil.example\r\n"
        b"Access-Control-Allow-Credentials: true\r\naccess-control-expose-headers: x-secret\r\n"
    )

    async def main():
        async with Upstream(answer(200, b"ok", headers=lines)) as upstream:
            yaml = yaml_for(upstream, plugins=f"- cors: {config}").replace(
                "workers: [", "pool: p}}\npools: {p: {workers: ["
            )
            yaml += "\nroutes: [{path: /x, pool: p, methods: [GET]}]\n"
            async with gateway(yaml) as process, RawClient(process.doors[0].shown) as client:
                return await client.get("/x", {"origin": origin} if origin else {})

    return run(main())


@pytest.mark.parametrize(
    ("config", "origin", "allowed", "vary"),
    [
        ("{origins: ['*']}", APP, "*", "Accept, x-a"),
        ("{origins: ['*']}", None, None, "Accept, x-a"),
        (LISTED, APP, APP, "Accept, x-a, Origin"),
        (LISTED, "https://evil.example", None, "Accept, x-a, Origin"),
        (LISTED, None, None, "Accept, x-a, Origin"),
    ],
)
def test_what_a_worker_says_of_origins_gives_way(config: str, origin: str | None, allowed: str | None, vary: str):
    got = passed_through(config, origin)
    assert got.body == b"ok"
    assert got.head.all("vary") == [vary]
    found = controls(got)
    assert found.get("access-control-allow-origin") == allowed
    assert "access-control-allow-credentials" not in found
    assert "x-secret" not in found.get("access-control-expose-headers", "")


@pytest.mark.parametrize(
    ("origin", "allowed"),
    [
        (APP, True),
        ("https://APP.example", True),
        ("https://a.team.example", True),
        ("https://a.b.team.example", True),
        ("http://localhost:5173", True),
        ("https://team.example", False),
        ("https://evil.example", False),
        ("http://app.example", False),
        ("https://app.example.evil.example", False),
        ("https://app.example:8443", False),
        ("https://evil.example/.team.example", False),
        ("https://a.team.example.evil.example", False),
        ("https://xteam.example", False),
        ("http://localhost", False),
        ("http://localhost:80:80", False),
        ("null", False),
    ],
)
def test_only_listed_origins_are_repeated(origin: str, allowed: bool):
    answered = told(LISTED, origin)
    assert answered.status == 200
    assert answered.header("vary") == "Origin"
    if allowed:
        assert controls(answered) == {
            "access-control-allow-origin": origin,
            "access-control-expose-headers": "x-request-id, request-id, retry-after, retry-after-ms, x-should-retry",
        }
    else:
        assert controls(answered) == {}


def test_no_origin_no_headers_but_caches_are_told():
    answered = told(LISTED, None)
    assert controls(answered) == {}
    assert answered.header("vary") == "Origin"


def test_every_origin_is_a_star_and_never_repeated():
    answered = told("{origins: ['*'], expose: []}", "https://anything.example")
    assert controls(answered) == {"access-control-allow-origin": "*"}
    assert answered.header("vary") is None


def test_credentials():
    answered = told("{origins: [https://app.example], credentials: true, expose: []}", APP)
    assert controls(answered) == {
        "access-control-allow-origin": APP,
        "access-control-allow-credentials": "true",
    }
    assert controls(told("{origins: [https://app.example], credentials: true}", "https://evil.example")) == {}


@pytest.mark.parametrize(
    ("how", "status"),
    [
        ({"body": {"model": "nope"}}, 404),
        ({"body": b"{"}, 400),
        ({"path": "/nowhere"}, 404),
        ({"script": answer(500, b"broken", "text/plain")}, 500),
        ({"script": b"nonsense\r\n\r\n"}, 502),
    ],
)
def test_refusals_and_errors_can_be_read_by_pages(how: dict, status: int):
    answered = told(LISTED, APP, **how)
    assert answered.status == status
    assert controls(answered)["access-control-allow-origin"] == APP
    assert answered.header("vary") == "Origin"


def test_a_vary_of_the_worker_stays():
    answered = told(LISTED, APP, script=json_answer(chat_answer("x"), headers=b"vary: accept\r\n"))
    assert answered.head.all("vary") == ["accept, Origin"]


def test_a_workers_own_cors_headers_do_not_cross():
    theirs = b"access-control-allow-origin: *\r\naccess-control-allow-credentials: true\r\n"
    answered = told(LISTED, "https://evil.example", script=json_answer(chat_answer("x"), headers=theirs))
    assert controls(answered) == {}


def test_a_preflight_is_answered_here():
    answered = preflight(LISTED, APP)
    assert (answered.status, answered.body) == (204, b"")
    assert controls(answered) == {
        "access-control-allow-origin": APP,
        "access-control-allow-methods": "GET, POST, OPTIONS",
        "access-control-allow-headers": "authorization,content-type",
        "access-control-max-age": "600",
        "access-control-expose-headers": "x-request-id, request-id, retry-after, retry-after-ms, x-should-retry",
    }
    assert answered.header("vary") == "Access-Control-Request-Headers, Origin"


def test_a_preflight_of_another_origin_learns_nothing():
    answered = preflight(LISTED, "https://evil.example")
    assert controls(answered) == {}


def test_listed_headers_and_methods():
    config = "{origins: ['*'], headers: [authorization, x-mine], methods: [POST], max_age: 1m, expose: []}"
    assert controls(preflight(config, APP, "x-theirs")) == {
        "access-control-allow-origin": "*",
        "access-control-allow-methods": "POST",
        "access-control-allow-headers": "authorization, x-mine",
        "access-control-max-age": "60",
    }


@pytest.mark.parametrize("asked", [None, "a b", "x" * 5000, "a,,b", "a;b"])
def test_asked_headers_that_are_none_are_not_repeated(asked: str | None):
    assert "access-control-allow-headers" not in controls(preflight(LISTED, APP, asked))


def test_a_plain_options_is_no_preflight():
    answered = told(LISTED, APP, method="OPTIONS")
    assert answered.header("allow") is not None
    assert controls(answered)["access-control-allow-origin"] == APP


@pytest.mark.parametrize(
    ("config", "fault"),
    [
        ("{origins: ['*'], credentials: true}", "'*' does not go with credentials"),
        ("{origins: ['null'], credentials: true}", "'null' does not go with credentials"),
        ("{origins: ['https://a.example'], expose: ['*'], credentials: true}", "expose: '*' does not go"),
        ("{origins: ['https://*']}", "'https://*' is no origin"),
        ("{origins: ['https://a.example/']}", "'https://a.example/' is no origin"),
        ("{origins: ['a.example']}", "'a.example' is no origin"),
        ("{origins: ['https://a.*.example']}", "is no origin"),
        ("{origins: ['https://a.example'], headers: ['a b']}", "'a b' is no name"),
        ("{}", "origins"),
    ],
)
def test_what_is_refused(config: str, fault: str):
    with pytest.raises(ConfigError) as raised:
        decoded(yaml_for("http://127.0.0.1:1", plugins=f"- cors: {config}"))
    assert fault in str(raised.value)
