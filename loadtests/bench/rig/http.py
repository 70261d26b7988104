"""The few HTTP calls that the rig itself makes."""

import json
import socket
import urllib.request
from collections.abc import Iterable
from typing import Any

COMPLETION = json.dumps(
    {"model": "mock", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4},
).encode()


def get(port: int, path: str) -> bytes:
    """The body of a GET; OSError where there is no good answer."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
        body: bytes = answer.read()
        return body


def get_json(port: int, path: str) -> Any:
    return json.loads(get(port, path))


def completes(port: int, headers: Iterable[str] = ()) -> bool:
    """Whether one real completion goes through, with these header lines; OSError where it is refused."""
    lines = dict(line.split(": ", 1) for line in ("Content-Type: application/json", *headers))
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/chat/completions", COMPLETION, lines)
    with urllib.request.urlopen(request, timeout=10) as answer:
        return b'"choices"' in answer.read()


def taken(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
