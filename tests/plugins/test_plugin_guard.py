"""What the `guard` plugin lets through, lowers and refuses."""

from __future__ import annotations

import orjson
import pytest
from fakes import RawClient, Upstream, chat_answer, decoded, gateway, json_answer, run, yaml_for
from tailrace.proxy.config import ConfigError

GOOD = {
    "/v1/chat/completions": chat_answer("x"),
    "/v1/completions": {"choices": []},
    "/v1/responses": {"output": []},
    "/v1/messages": {"content": [], "stop_reason": "end_turn"},
    "/v1/embeddings": {"data": []},
}
TOKENS = "{max_tokens: {cap: 100}}"


def asked(config: str, path: str, body: dict | bytes):
    """The answer to one request, and the bytes that the worker saw of it."""

    async def main():
        async with (
            Upstream(json_answer(GOOD[path])) as upstream,
            gateway(yaml_for(upstream, plugins=f"- guard: {config}")) as process,
            RawClient(process.doors[0].shown) as client,
        ):
            answer = await client.post(path, body)
            return answer, upstream.requests[0].body if upstream.requests else None

    return run(main())


def refused(config: str, path: str, body: dict) -> dict:
    answer, seen = asked(config, path, body)
    assert seen is None
    return {"status": answer.status, **answer.json()["error"]}


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/v1/chat/completions", "max_tokens"),
        ("/v1/chat/completions", "max_completion_tokens"),
        ("/v1/completions", "max_tokens"),
        ("/v1/responses", "max_output_tokens"),
        ("/v1/messages", "max_tokens"),
    ],
)
def test_a_request_for_more_tokens_is_lowered_or_refused(path: str, field: str):
    raw = b'{ "model":"m", "%b" : 1000 ,"other":1.50}' % field.encode()
    answer, seen = asked(TOKENS, path, raw)
    assert answer.status == 200
    assert orjson.loads(seen) == {"model": "m", field: 100, "other": 1.5}
    assert b'"other":1.50' in seen
    answer, seen = asked(TOKENS, path, raw.replace(b"1000", b"100"))
    assert seen == raw.replace(b"1000", b"100")
    answer, seen = asked("{max_tokens: {cap: 100, above: refuse}}", path, raw)
    assert answer.status == 400
    assert seen is None


def test_a_refusal_names_the_field():
    error = refused("{max_tokens: {cap: 9, above: refuse}}", "/v1/chat/completions", {"model": "m", "max_tokens": 10})
    assert error == {
        "status": 400,
        "message": "'max_tokens' must be at most 9, got 10.",
        "type": "invalid_request_error",
        "param": "max_tokens",
        "code": "invalid_request_error",
    }


def test_both_spellings_of_a_chat_request_are_bounded():
    body = {"model": "m", "max_tokens": 5000, "max_completion_tokens": 50}
    _, seen = asked(TOKENS, "/v1/chat/completions", body)
    assert orjson.loads(seen) == {"model": "m", "max_tokens": 100, "max_completion_tokens": 50}


@pytest.mark.parametrize(
    ("config", "path", "body", "added"),
    [
        ("{max_tokens: {default: 7}}", "/v1/chat/completions", {}, {"max_completion_tokens": 7}),
        ("{max_tokens: {default: 7}}", "/v1/chat/completions", {"max_tokens": 9}, {}),
        ("{max_tokens: {default: 7, cap: 8}}", "/v1/responses", {"max_output_tokens": None}, {"max_output_tokens": 7}),
        (TOKENS, "/v1/chat/completions", {}, {"max_completion_tokens": 100}),
        (TOKENS, "/v1/responses", {}, {"max_output_tokens": 100}),
        (TOKENS, "/v1/completions", {}, {}),
        ("{max_tokens: {cap: 15}}", "/v1/completions", {}, {"max_tokens": 15}),
        (TOKENS, "/v1/embeddings", {"max_tokens": "x"}, {}),
        ("{}", "/v1/chat/completions", {"max_tokens": "x", "n": []}, {}),
    ],
)
def test_what_a_request_without_a_bound_gets(config: str, path: str, body: dict, added: dict):
    body = {"model": "m", **body}
    _, seen = asked(config, path, body)
    assert orjson.loads(seen) == body | added


@pytest.mark.parametrize("wrong", ["7", 7.5, True, [], {}, 10**30])
@pytest.mark.parametrize(
    ("config", "field"),
    [(TOKENS, "max_tokens"), (TOKENS, "max_completion_tokens"), ("{max_choices: 3}", "n")],
)
def test_a_wrong_type_is_an_error_of_the_client(config: str, field: str, wrong: object):
    raw = b'{"model":"m","%b":%b}' % (field.encode(), b"1" + b"0" * 30 if wrong == 10**30 else orjson.dumps(wrong))
    error = refused(config, "/v1/chat/completions", raw)
    assert (error["status"], error["param"]) == (400, field)
    assert error["message"] == f"'{field}' must be a whole number."


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/v1/chat/completions", {"n": 4}, "n"),
        ("/v1/completions", {"n": 1, "best_of": 20}, "best_of"),
        ("/v1/chat/completions", {"n": 3}, None),
        ("/v1/chat/completions", {"n": None}, None),
        ("/v1/chat/completions", {}, None),
    ],
)
def test_choices(path: str, body: dict, param: str | None):
    answer, seen = asked("{max_choices: 3}", path, {"model": "m", **body})
    assert answer.status == (200 if param is None else 400)
    assert (seen is None) == (param is not None)
    if param is not None:
        assert answer.json()["error"]["param"] == param


@pytest.mark.parametrize(
    ("models", "allowed"),
    [("[m]", True), ("[a, 'm*']", True), ("['*']", True), ("[a]", False), ("['m?']", False), ("['[m]*']", False)],
)
def test_models(models: str, allowed: bool):
    config = f"{{models: {models}}}"
    if allowed:
        assert asked(config, "/v1/chat/completions", {"model": "m"})[0].status == 200
        return
    error = refused(config, "/v1/chat/completions", {"model": "m"})
    assert (error["status"], error["code"], error["param"]) == (403, "model_not_allowed", "model")
    assert error["type"] == "permission_error"


def test_a_model_can_be_refused_as_if_it_did_not_exist():
    config = "{models: [], refuse_with: model_not_found}"
    error = refused(config, "/v1/chat/completions", {"model": "m"})
    unknown = refused("{}", "/v1/chat/completions", {"model": "q"})
    assert error == unknown | {"message": unknown["message"].replace("'q'", "'m'")}


def test_the_error_has_the_shape_of_its_api():
    answer, _ = asked("{models: []}", "/v1/messages", {"model": "m"})
    assert answer.status == 403
    assert answer.json()["error"]["type"] == "permission_error"


def test_a_default_above_the_cap_is_a_fault_of_the_configuration():
    with pytest.raises(ConfigError, match="above the cap"):
        decoded(yaml_for("http://127.0.0.1:1", plugins="- guard: {max_tokens: {default: 9, cap: 8}}"))
