"""A completion as chunks."""

from __future__ import annotations

import orjson
from tailrace.worker.sim.answer import DONE, Asked, Stream
from tailrace.worker.sim.engine import Engine
from tailrace.worker.sim.exchange import Exchange, chunk
from tailrace.worker.sim.logprobs import completion_logprobs, ranked
from tailrace.worker.sim.sequence import Sequence
from tailrace.worker.sim.usage import running, stream_usage, timing

_PLAIN = (
    b'","logprobs":null,"finish_reason":null,"stop_reason":null,"prompt_token_ids":null,"token_ids":null}]}\n\n\r\n'
)


class CompletionStream(Stream):
    """Writes the chunks of one request, all its choices interleaved."""

    def __init__(self, engine: Engine, exchange: Exchange, asked: Asked, prefix: str) -> None:
        super().__init__(engine, exchange, asked, prefix)
        self._start = b'data: {"id":%b,"object":"text_completion","created":%d,"model":%b,"choices":[' % (
            orjson.dumps(self.id),
            self.created,
            orjson.dumps(asked.model),
        )
        self._fingerprint = b',"system_fingerprint":"%b"' % engine.fingerprint.encode()
        options = asked.options
        self._quick = not (options.continuous_usage or options.return_token_ids)
        self._quick = self._quick and asked.sampling.logprobs is None
        self._before = [self._start + b'{"index":%d,"text":"' % seq.index for seq in self.sequences]
        self._size = [len(before) + len(_PLAIN) - 2 for before in self._before]
        self._offset = [0] * len(self.sequences)

    def render(self, seq: Sequence, token: int | None) -> bytes:
        """The chunk for one token."""
        if not seq.ids:
            return b""
        if self._quick and seq.finish_reason is None:
            at, text = seq.index, seq.delta
            return b"%x\r\n%b%b%b" % (self._size[at] + len(text), self._before[at], text, _PLAIN)
        return chunk(self.event(seq, token))

    def event(self, seq: Sequence, token: int | None) -> bytes:
        """The event for one token; None where a choice ends without one."""
        options = self.asked.options
        logprobs = b"null"
        if token is not None and (top := self.asked.sampling.logprobs) is not None:
            offset = self._offset[seq.index]
            told = completion_logprobs([ranked(seq, top)], offset)
            logprobs = orjson.dumps(told)
            # By the tokens told, not by the text shown: that lags behind where a stop string may come.
            self._offset[seq.index] = offset + len(told["tokens"][0])
        ids, prompt = b"null", b"null"
        if options.return_token_ids:
            ids = b"[]" if token is None else b"[%d]" % token
            prompt = orjson.dumps(seq.prompt) if len(seq.ids) <= 1 else b"null"
        choice = b'{"index":%d,"text":"%b","logprobs":%b,"finish_reason":%b,"stop_reason":%b,"prompt_token_ids":%b' % (
            seq.index,
            seq.delta,
            logprobs,
            orjson.dumps(seq.finish_reason),
            orjson.dumps(seq.stop_reason),
            prompt,
        )
        end = b"" if options.include_usage or seq.finish_reason is None else self._fingerprint
        usage = running(seq, len(seq.ids)) if options.continuous_usage else None
        if usage is not None:
            end += b',"usage":' + orjson.dumps(usage)
        return b'%b%b,"token_ids":%b}]%b}\n\n' % (self._start, choice, ids, end)

    def finish(self) -> None:
        """The usage chunk if asked for, and the end."""
        settings = self.engine.settings
        usage = stream_usage(settings, self.sequences, created=False) if self.asked.options.include_usage else None
        if usage is not None:
            times = timing(settings, self.sequences)
            metrics = b',"metrics":' + orjson.dumps(times) if times else b""
            end = b'],"usage":%b%b%b}\n\n' % (orjson.dumps(usage), self._fingerprint, metrics)
            self.exchange.event(self._start + end)
        self.exchange.event(DONE)
        self.exchange.end()
