"""`/v1/audio/transcriptions` and `translations`: a made-up text, always the same for the same file."""

from __future__ import annotations

import re
from zlib import crc32

import orjson
from tailrace.worker.sim.answer import Asked, Unary
from tailrace.worker.sim.engine import Engine
from tailrace.worker.sim.errors import draining, invalid
from tailrace.worker.sim.exchange import Exchange
from tailrace.worker.sim.heads import JSON, TEXT
from tailrace.worker.sim.options import read_options
from tailrace.worker.sim.sequence import Sampling
from tailrace.worker.sim.tokenizer import encode

_BYTES_A_SECOND = 32_000
"""Of 16 kHz, 16 bit, one channel: what a file's length is guessed from."""
_TOKENS_A_SECOND = 3


def transcribe(engine: Engine, exchange: Exchange) -> None:
    """Answer what a recording says."""
    _answer(engine, exchange, "transcribe")


def translate(engine: Engine, exchange: Exchange) -> None:
    """Answer what a recording says, in English."""
    _answer(engine, exchange, "translate")


def _answer(engine: Engine, exchange: Exchange, task: str) -> None:
    fields = read_form(exchange.request.body, exchange.request.headers.get(b"content-type", b""))
    if "file" not in fields:
        raise invalid("missing", "body.file", "Field required", None)
    model = engine.resolve(_text(fields, "model") or None)
    shape = _text(fields, "response_format") or "json"
    if shape not in ("json", "text"):
        raise invalid("literal_error", "body.response_format", "Input should be 'json' or 'text'", shape)
    if engine.state == "draining":
        raise draining()
    recording = fields["file"]
    seconds = max(1, round(len(recording) / _BYTES_A_SECOND))
    # The file's hash stands for its sound: the answer goes on from it as from any prompt.
    heard = f"{task} {crc32(recording):08x} {_text(fields, 'language')} {_text(fields, 'prompt')}\n"
    length = min(4 + seconds * _TOKENS_A_SECOND, engine.settings.max_model_len // 2)
    asked = Asked(
        model=model,
        prompts=[encode(heard)[-engine.settings.max_model_len // 2 :]],
        sampling=Sampling(max_tokens=length, greedy=True, ignore_eos=True),
        options=read_options({}, limits=()),
    )
    Transcript(engine, exchange, asked, seconds, plain=shape == "text").start()


class Transcript(Unary):
    """A text, bare or as JSON."""

    def __init__(self, engine: Engine, exchange: Exchange, asked: Asked, seconds: int, *, plain: bool) -> None:
        super().__init__(engine, exchange, asked, "trsc-")
        self._seconds = seconds
        self._plain = plain

    def body(self) -> bytes:
        """The text in its shape."""
        text = self.sequences[0].text
        if self._plain:
            return text.encode()
        return orjson.dumps({"text": text, "usage": {"type": "duration", "seconds": self._seconds}})

    def finish(self) -> None:
        """Send it."""
        self.exchange.reply(200, self.body(), TEXT if self._plain else JSON)


def _text(fields: dict[str, bytes], name: str) -> str:
    return fields.get(name, b"").decode("utf-8", "replace")


def read_form(body: bytes, content_type: bytes) -> dict[str, bytes]:
    """The fields of a multipart form; the last of a name counts."""
    boundary = re.match(rb'multipart/form-data *;.*boundary="?([^";]+)', content_type, re.IGNORECASE)
    if boundary is None:
        raise invalid("missing", "body.file", "Field required", None)
    fields: dict[str, bytes] = {}
    for part in (b"\r\n" + body).split(b"\r\n--" + boundary[1])[1:]:
        head, parted, content = part.partition(b"\r\n\r\n")
        name = re.search(rb'[; ]name="([^"]*)"', head)
        if parted and name is not None:
            fields[name[1].decode("utf-8", "replace")] = content
    return fields
