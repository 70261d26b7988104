"""The prompts of a scenario: few, fixed and greedy, so that the right answer to each is known."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

import orjson
from openloop.requests import Corpus

from scenario.plan import Load

PATH = "/v1/chat/completions"


class Prompts:
    """The requests of one kind of load, by number."""

    def __init__(self, name: str, load: Load, model: str, seed: int, extra: Mapping[str, str]) -> None:
        self.count = load.prompts
        self.lengths = [load.answers[number % len(load.answers)] for number in range(load.prompts)]
        corpus = Corpus(Random(f"{seed}/{name}"), load.words * 2)
        starts = Random(f"{seed}/{name}/starts")
        self._requests = []
        lines = [f"{key}: {value}" for key, value in (dict(load.headers) | dict(extra)).items()]
        head = "\r\n".join([f"POST {PATH} HTTP/1.1", "host: tailrace", "content-type: application/json", *lines])
        for number, length in enumerate(self.lengths):
            words = corpus.cut(starts.randrange(load.words), load.words).decode()
            body = orjson.dumps(
                {
                    "model": model,
                    "messages": [{"role": "user", "content": f"{name} {number}: {words}"}],
                    "max_tokens": length,
                    "min_tokens": length,
                    "temperature": 0,
                    "stream": True,
                    "stream_options": {"include_usage": True},
                }
            )
            self._requests.append(f"{head}\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)

    def request(self, number: int) -> bytes:
        """The bytes of a request."""
        return self._requests[number]
