"""Writes requests: prompts of a wanted length, no two the same, as the bytes that go down the wire."""

from collections.abc import Sequence
from random import Random

import orjson

from openloop.dialects import Dialect

# Short common words: nearly every tokenizer makes one token of each, with its space.
_TEXT = """
the of and to in is you that it he was for on are as with his they at be this have from or one had by
word but not what all were we when your can said there use an each which she do how their if will up
other about out many then them these so some her would make like him into time has look two more write go
see number no way could people my than first water been call who oil its now find long down day did get
come made may part
"""


class Corpus:
    """Random words, from which any run of them is cut without joining."""

    def __init__(self, random: Random, words: int) -> None:
        chosen = random.choices(_TEXT.split(), k=words)
        self.words = words
        self._text = b"".join(word.encode() + b" " for word in chosen)
        self._starts = [0]
        for word in chosen:
            self._starts.append(self._starts[-1] + len(word) + 1)

    def cut(self, first: int, words: int) -> bytes:
        return self._text[self._starts[first] : self._starts[first + words]]


class RequestWriter:
    """Makes the bytes of each request. A prompt begins with a number of its own after `shared_prefix` common words."""

    def __init__(
        self,
        dialect: Dialect,
        *,
        host: str,
        path: str,
        model: str,
        headers: Sequence[tuple[str, str]],
        stream: bool,
        shared_prefix: int,
        longest_prompt: int,
        seed: str,
    ) -> None:
        self._random = Random(f"{seed}/prompts")
        self._corpus = Corpus(self._random, longest_prompt + 4096)
        self._shared = Corpus(Random(f"{seed}/prefix"), shared_prefix)
        self._opening = b'{"model":' + orjson.dumps(model) + b"," + dialect.prompt_opening
        self._closing = dialect.prompt_closing + b',"' + dialect.length_field.encode() + b'":'
        self._end = b',"stream":true}' if stream else b"}"
        given = {name.lower() for name, _ in headers}
        usual = (("Host", host), ("Content-Type", "application/json"), ("Accept", "*/*"), ("User-Agent", "openloop"))
        lines = [f"POST {path} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in usual if name.lower() not in given]
        lines += [f"{name}: {value}" for name, value in headers]
        self._head = "\r\n".join([*lines, "Content-Length: "]).encode("latin-1")

    def write(self, number: int, prompt_tokens: int, max_tokens: int) -> bytes:
        """One request; `number` makes its prompt differ from every other's."""
        shared = min(self._shared.words, prompt_tokens - 1)
        own = prompt_tokens - 1 - shared
        first = self._random.randrange(self._corpus.words - own)
        body = b"".join(
            (
                self._opening,
                self._shared.cut(0, shared),
                b"%d " % number,
                self._corpus.cut(first, own),
                self._closing,
                b"%d" % max_tokens,
                self._end,
            )
        )
        return b"%b%d\r\n\r\n%b" % (self._head, len(body), body)
