"""A chat answer in one piece."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import orjson
from tailrace.worker.sim.answer import Unary
from tailrace.worker.sim.logprobs import Ranked, chat_logprobs, ranked
from tailrace.worker.sim.sequence import Sequence
from tailrace.worker.sim.tokenizer import decode
from tailrace.worker.sim.usage import full_timing, full_usage


class ChatUnary(Unary):
    """Waits for all choices and sends them."""

    _ranked: dict[Sequence, list[Ranked]] | None = None

    def on_token(self, seq: Sequence, token: int | None) -> None:
        """Nothing is shown before the end; probabilities are noted while they are known."""
        if token is not None and (top := self.asked.sampling.logprobs) is not None:
            if self._ranked is None:
                self._ranked = {}
            self._ranked.setdefault(seq, []).append(ranked(seq, top))

    def body(self) -> bytes:
        """The answer with all its choices."""
        settings = self.engine.settings
        options = self.asked.options
        return orjson.dumps(
            {
                "id": self.id,
                "object": "chat.completion",
                "created": self.created,
                "model": self.asked.model,
                "choices": [self._choice(seq) for seq in self.sequences],
                "service_tier": None,
                "system_fingerprint": self.engine.fingerprint,
                "usage": full_usage(settings, self.sequences, created=True),
                "prompt_logprobs": None,
                "prompt_token_ids": self.sequences[0].prompt if options.return_token_ids else None,
                "prompt_text": None,
                "kv_transfer_params": None,
                "ec_transfer_params": None,
                "metrics": full_timing(settings, self.sequences),
            }
        )

    def _choice(self, seq: Sequence) -> dict[str, Any]:
        top = self.asked.sampling.logprobs
        logprobs = None
        if top is not None:
            found = (self._ranked or {}).get(seq, [])
            logprobs = {"content": [chat_logprobs(one, top) for one in found]}
        return {
            "index": seq.index,
            "message": self.message(seq),
            "logprobs": logprobs,
            "finish_reason": self.reason(seq),
            "stop_reason": seq.stop_reason,
            "token_ids": seq.ids if self.asked.options.return_token_ids else None,
            "routed_experts": None,
        }

    def message(self, seq: Sequence) -> dict[str, Any]:
        """The assistant's message: text, or the call of a tool that came to its end."""
        plan = self.asked.plan
        called = plan is not None and plan.tool is not None and seq.finish_reason == "stop"
        message: dict[str, Any] = {"role": "assistant", "content": "" if called else seq.text, "refusal": None}
        message |= {"annotations": None, "audio": None, "function_call": None}
        if called and plan is not None:
            arguments = decode(plan.ids[plan.arguments.start : plan.arguments.stop])
            function = {"name": plan.tool, "arguments": arguments}
            message["tool_calls"] = [
                {"id": f"chatcmpl-tool-{uuid4().hex[16:]}", "type": "function", "function": function}
            ]
        return message | {"reasoning": None}
