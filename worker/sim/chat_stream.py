"""A chat answer as chunks."""

from __future__ import annotations

from uuid import uuid4

import orjson
from tailrace.worker.sim.answer import DONE, Asked, Stream
from tailrace.worker.sim.engine import Engine
from tailrace.worker.sim.exchange import Exchange, chunk
from tailrace.worker.sim.logprobs import chat_logprobs, ranked
from tailrace.worker.sim.sequence import Sequence
from tailrace.worker.sim.usage import running, stream_usage, timing

_PLAIN = b'"},"logprobs":null,"finish_reason":null,"token_ids":null}]}\n\n\r\n'
_ROLE = b'{"role":"assistant","content":""}'


class ChatStream(Stream):
    """Writes the chunks of one request, all its choices interleaved."""

    def __init__(self, engine: Engine, exchange: Exchange, asked: Asked, prefix: str) -> None:
        super().__init__(engine, exchange, asked, prefix)
        model = orjson.dumps(asked.model)
        self._common = b'data: {"id":%b,"object":"chat.completion.chunk","created":%d,"model":%b,"choices":[' % (
            orjson.dumps(self.id),
            self.created,
            model,
        )
        self._opened = False
        self._fingerprint = b',"system_fingerprint":"%b"' % engine.fingerprint.encode()
        options = asked.options
        self._quick = not (options.continuous_usage or options.return_token_ids or asked.plan)
        self._quick = self._quick and asked.sampling.logprobs is None
        # Of the plain chunk only the text differs: what stands before it is made once a choice.
        self._before = [self._common + b'{"index":%d,"delta":{"content":"' % seq.index for seq in self.sequences]
        self._size = [len(before) + len(_PLAIN) - 2 for before in self._before]

    def render(self, seq: Sequence, token: int | None) -> bytes:
        """The chunk for one token, after the opening ones if it is the first of all."""
        if self._quick and seq.finish_reason is None and self._opened:
            at, text = seq.index, seq.delta
            return b"%x\r\n%b%b%b" % (self._size[at] + len(text), self._before[at], text, _PLAIN)
        opening = b""
        if not self._opened:
            self._opened = True
            opening = b"".join(self._role(each) for each in self.sequences)
        if not seq.ids:
            return opening
        delta = self._tool_delta(seq) if self.asked.plan and self.asked.plan.tool else b'{"content":"%b"}' % seq.delta
        if delta is None:
            if seq.finish_reason is None and not self.asked.options.return_token_ids:
                return opening
            delta = b"{}"
        return opening + self._chunk(seq, token, delta)

    def _role(self, seq: Sequence) -> bytes:
        ids = orjson.dumps(seq.prompt) if self.asked.options.return_token_ids else b"null"
        choice = b'{"index":%d,"delta":%b,"logprobs":null,"finish_reason":null}]' % (seq.index, _ROLE)
        usage = self._usage(seq, 0)
        end = b',"prompt_token_ids":%b,"prompt_text":null}\n\n' % ids
        return chunk(self._common + choice + usage + end)

    def _chunk(self, seq: Sequence, token: int | None, delta: bytes) -> bytes:
        options = self.asked.options
        logprobs = b"null"
        if token is not None and (top := self.asked.sampling.logprobs) is not None:
            logprobs = orjson.dumps({"content": [chat_logprobs(ranked(seq, top), top)]})
        reason, end = b"null", b""
        if seq.finish_reason is not None:
            reason = b'%b,"stop_reason":%b' % (orjson.dumps(self.reason(seq)), orjson.dumps(seq.stop_reason))
            end = b"" if options.include_usage else self._fingerprint
        ids = b"null"
        if options.return_token_ids:
            ids = b"[]" if token is None else b"[%d]" % token
        choice = b'{"index":%d,"delta":%b,"logprobs":%b,"finish_reason":%b,"token_ids":%b}]' % (
            seq.index,
            delta,
            logprobs,
            reason,
            ids,
        )
        return chunk(self._common + choice + self._usage(seq, len(seq.ids)) + end + b"}\n\n")

    def _usage(self, seq: Sequence, said: int) -> bytes:
        if not self.asked.options.continuous_usage:
            return b""
        usage = running(seq, said)
        if usage is None:
            return b""
        return b',"usage":' + orjson.dumps(usage | {"completion_tokens_details": None})

    def _tool_delta(self, seq: Sequence) -> bytes | None:
        """What the latest token adds to the call; None where it adds nothing."""
        plan = self.asked.plan
        if plan is None or seq.finish_reason == "stop":
            return None
        at = len(seq.ids) - 1
        if at == plan.arguments.start - 1:
            call = {
                "id": f"chatcmpl-tool-{uuid4().hex[16:]}",
                "type": "function",
                "index": 0,
                "function": {"name": plan.tool},
            }
            return orjson.dumps({"content": None, "tool_calls": [call]})
        if at in plan.arguments and seq.delta:
            return b'{"content":null,"tool_calls":[{"index":0,"function":{"arguments":"%b"}}]}' % seq.delta
        return None

    def finish(self) -> None:
        """The usage chunk if asked for, and the end."""
        settings = self.engine.settings
        usage = stream_usage(settings, self.sequences, created=True) if self.asked.options.include_usage else None
        if usage is not None:
            times = timing(settings, self.sequences)
            metrics = b',"metrics":' + orjson.dumps(times) if times else b""
            end = b'],"usage":%b%b%b}\n\n' % (orjson.dumps(usage), self._fingerprint, metrics)
            self.exchange.event(self._common + end)
        self.exchange.event(DONE)
        self.exchange.end()
