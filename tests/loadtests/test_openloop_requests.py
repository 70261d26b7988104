"""Requests as they go down the wire."""

import orjson
import pytest
from openloop.dialects import DIALECTS, dialect_of
from openloop.requests import RequestWriter


def writer(
    dialect: str = "chat", *, stream: bool = True, shared_prefix: int = 0, seed: str = "1", **more: object
) -> RequestWriter:
    settings = {
        "host": "localhost:1",
        "path": "/v1/a%20b",
        "model": 'mo"del',
        "headers": (("Authorization", "Bearer x"),),
        "longest_prompt": 500,
        **more,
    }
    return RequestWriter(DIALECTS[dialect], stream=stream, shared_prefix=shared_prefix, seed=seed, **settings)  # type: ignore[arg-type]


def body(request: bytes) -> dict[str, object]:
    head, _, payload = request.partition(b"\r\n\r\n")
    assert b"\r\nContent-Length: %d" % len(payload) in head
    parsed = orjson.loads(payload)
    assert isinstance(parsed, dict)
    return parsed


@pytest.mark.parametrize(
    ("dialect", "prompt_field", "length_field"),
    [
        ("chat", "messages", "max_tokens"),
        ("messages", "messages", "max_tokens"),
        ("completions", "prompt", "max_tokens"),
        ("responses", "input", "max_output_tokens"),
    ],
)
def test_every_dialect_gets_its_fields(dialect: str, prompt_field: str, length_field: str) -> None:
    parsed = body(writer(dialect).write(7, 50, 33))
    assert (parsed["model"], parsed[length_field], parsed["stream"]) == ('mo"del', 33, True)
    prompt = parsed[prompt_field]
    text = prompt if isinstance(prompt, str) else prompt[0]["content"]  # type: ignore[index]
    assert len(text.split()) == 50
    assert "stream" not in body(writer(dialect, stream=False).write(7, 50, 33))


def test_prompts_differ_but_for_what_is_shared() -> None:
    made = writer(shared_prefix=20)
    texts = [body(made.write(n, 60, 1))["messages"][0]["content"].split() for n in (1, 2)]  # type: ignore[index]
    assert texts[0][:20] == texts[1][:20]
    assert texts[0][20] != texts[1][20]
    assert len(texts[0]) == 60
    short = body(made.write(3, 5, 1))["messages"][0]["content"].split()  # type: ignore[index]
    assert short[:4] == texts[0][:4]
    assert len(short) == 5


def test_the_same_seed_gives_the_same_requests() -> None:
    first, second, other = (writer(seed=seed) for seed in ("1", "1", "2"))
    assert first.write(1, 80, 5) == second.write(1, 80, 5)
    assert first.write(2, 80, 5) != other.write(2, 80, 5)


def test_headers_are_sent_once_and_the_given_ones_win() -> None:
    head = writer(headers=(("user-agent", "me"), ("X-A", "1"), ("X-A", "2"))).write(1, 5, 5).partition(b"\r\n\r\n")[0]
    assert head.startswith(b"POST /v1/a%20b HTTP/1.1\r\nHost: localhost:1\r\n")
    assert head.lower().count(b"user-agent") == 1
    assert b"\r\nX-A: 1\r\nX-A: 2\r\n" in head


def test_the_path_tells_the_dialect() -> None:
    paths = ("/v1/chat/completions", "/v1/completions?x=1", "/api/v1/messages", "/v1/responses")
    assert [dialect_of(path).name for path in paths] == ["chat", "completions", "messages", "responses"]
    with pytest.raises(ValueError, match="--dialect"):
        dialect_of("/v1/embeddings")
