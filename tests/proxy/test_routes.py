"""Paths: what is served, what is refused and how, and what is passed through."""

from __future__ import annotations

import json

import pytest
from fakes import Answer, RawClient, Upstream, gateway, json_answer, run
from tailrace.proxy.replies import not_found, options
from tailrace.proxy.routes import INFERENCE, RouteTable

YAML = """
role: gateway
listen: ["127.0.0.1:0"]
pools: {{p: {{workers: ["{url}"]}}}}
models: {{m: {{pool: p}}, org/model: {{pool: p}}}}
routes: [{{path: /v1/images/*, pool: p, methods: [POST, GET]}}, {{path: /exact, pool: p}}]
"""


def asked(method: str, path: str, body: object = None) -> tuple[int, bytes, list[bytes]]:
    """Status and body for one request, and the heads that the worker saw."""
    got, heads = answered(method, path, body)
    return got.status, got.body, heads


def answered(method: str, path: str, body: object = None) -> tuple[Answer, list[bytes]]:
    """The answer to one request, and the heads that the worker saw."""

    async def main() -> tuple[Answer, list[bytes]]:
        async with Upstream(json_answer({"ok": True})) as upstream, gateway(YAML.format(url=upstream.url)) as process:
            async with RawClient(process.doors[0].shown) as client:
                await client.request(method, path, b"" if body is None else json.dumps(body).encode())
                got = await client.read_answer(method=method)
                return got, [request.head for request in upstream.requests]

    return run(main())


@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/v1/images/generations?size=1"), ("GET", "/v1/images/a/b"), ("POST", "/exact")]
)
def test_configured_paths_are_passed_through(method: str, path: str) -> None:
    status, body, heads = asked(method, path, {"any": "thing"} if method == "POST" else None)
    assert (status, json.loads(body)) == (200, {"ok": True})
    assert heads[0].startswith(f"{method} {path} HTTP/1.1\r\n".encode())


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nowhere", 404, "not_found"),
        ("POST", "/v1/chat", 404, "not_found"),
        ("GET", "/v1/chat/completions", 405, "method_not_allowed"),
        ("PUT", "/exact", 405, "method_not_allowed"),
        ("POST", "/v1/models", 405, "method_not_allowed"),
        ("POST", "/v1/models/m", 405, "method_not_allowed"),
        ("PUT", "/v1/images/a", 405, "method_not_allowed"),
        ("GET", "/v1/messages", 405, None),
        ("POST", "/v1/files", 501, "not_supported"),
        ("GET", "/v1/files/file-1/content", 501, "not_supported"),
        ("POST", "/v1/batches", 501, "not_supported"),
        ("POST", "/v1/messages/batches", 501, None),
        ("GET", "/v1/messages/batches/msgbatch_1/results", 501, None),
        ("GET", "/v1/realtime", 501, "not_supported"),
        ("POST", "/v1/images", 501, "not_supported"),
        ("POST", "/v1/audio/speech", 501, "not_supported"),
        ("POST", "/v1/moderations", 501, "not_supported"),
        ("GET", "/v1/models/unheard-of", 404, "model_not_found"),
    ],
)
def test_what_is_not_served_says_so(method: str, path: str, status: int, code: str | None) -> None:
    got, body, heads = asked(method, path, {} if method in ("POST", "PUT") else None)
    said = json.loads(body)
    assert (got, said["error"].get("code"), said.get("type")) == (status, code, None if code else "error")
    assert not heads


@pytest.mark.parametrize("path", ["/v1/models/zz", "/nowhere"])
def test_an_error_has_the_shape_of_the_api_that_is_spoken(path: str) -> None:
    async def main() -> None:
        async with gateway(YAML.format(url="http://127.0.0.1:1")) as process:
            async with RawClient(process.doors[0].shown) as client:
                for headers in ({}, {"Anthropic-Version": "2023-06-01"}, {}):
                    got = await client.get(path, headers)
                    assert got.status == 404
                    said = got.json()
                    if headers:
                        assert (said["type"], said["error"]["type"]) == ("error", "not_found_error")
                        assert said["request_id"] == got.header("request-id") == got.header("x-request-id")
                    else:
                        assert set(said) == {"error"}
                        assert got.header("request-id") is None

    run(main())


def test_the_models_come_from_memory() -> None:
    status, body, heads = asked("GET", "/v1/models")
    assert status == 200
    assert [model["id"] for model in json.loads(body)["data"]] == ["m", "org/model"]
    status, body, _ = asked("GET", "/v1/models/org/model")
    assert json.loads(body)["id"] == "org/model"
    assert not heads


METHODS = {
    "/v1/chat/completions": "OPTIONS, POST",
    "/v1/messages": "OPTIONS, POST",
    "/v1/models": "GET, HEAD, OPTIONS",
    "/v1/models/org/model": "GET, HEAD, OPTIONS",
    "/healthz": "GET, HEAD, OPTIONS",
    "/v1/images/a": "GET, OPTIONS, POST",
    "/exact": "OPTIONS, POST",
}


@pytest.mark.parametrize("path", METHODS)
def test_a_path_says_which_methods_it_has(path: str) -> None:
    got, heads = answered("PUT", path, {})
    assert (got.status, got.head.all("allow")) == (405, [METHODS[path]])
    got, more = answered("OPTIONS", path)
    assert (got.status, got.head.all("allow")) == (204, [METHODS[path]])
    assert not heads + more


@pytest.mark.parametrize(("path", "status"), [("/v1/models", 200), ("/v1/models/m", 200), ("/v1/models/x", 404)])
def test_the_head_of_a_model_is_that_of_its_answer(path: str, status: int) -> None:
    got, _ = answered("HEAD", path)
    whole, _ = answered("GET", path)
    assert (got.status, got.body, whole.status) == (status, b"", status)
    assert got.header("content-length") == whole.header("content-length") == str(len(whole.body))


def test_options_is_answered_without_a_worker() -> None:
    status, body, heads = asked("OPTIONS", "/v1/chat/completions")
    assert (status, body, heads) == (204, b"", [])


def test_every_inference_route_is_found_by_its_path_alone() -> None:
    table = RouteTable(INFERENCE, not_found, options)
    for route in INFERENCE:
        if not route.path.endswith("*"):
            assert table.find("POST", route.path) is route
            assert table.find("POST", route.path + "/") is not route
            assert table.find("POST", route.path.upper()) is not route
