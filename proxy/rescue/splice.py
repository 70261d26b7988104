"""Events of a continuation, in the form of the stream that it continues: same id, time, model, fields and framing.

What one engine would have sent is what the client gets: token counts are those of the whole answer, and where stop
strings are looked for here, the end is made here too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import orjson

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tailrace.proxy.rescue.stops import Stops
    from tailrace.proxy.sse import Event

DONE: Final = b"data: [DONE]\n\n"
_ADDED: Final = ("system_fingerprint", "metrics", "service_tier")
_PROMPT: Final = "prompt_token_ids"


class Unlike(Exception):  # noqa: N818 - a fact about a continuation
    """A continuation that is not one of the stream; the text says why."""


class Splice:
    """Rewrites the events of one continuation after `sample`, an event with content of the stream so far.

    `prompt` and `done` are the tokens of the prompt and those that came before. Usage is wanted at the end (`final`)
    and beside each event (`running`). `known` ids were shown though their text was not: they come again, and are not
    shown twice.
    """

    __slots__ = (
        "_base",
        "_choice",
        "_done",
        "_final",
        "_finished",
        "_known",
        "_paid",
        "_prompt",
        "_running",
        "_said",
        "_stops",
        "ended",
    )

    def __init__(
        self,
        sample: Any,
        prompt: int,
        done: int,
        *,
        final: bool,
        running: bool,
        known: Iterable[int] = (),
        stops: Stops | None = None,
    ) -> None:
        self._base = {name: value for name, value in sample.items() if name not in ("choices", "usage", *_ADDED)}
        self._said: Any = sample.get("usage")
        self._choice: dict[str, Any] = dict(sample["choices"][0])
        for shape in (self._base, self._choice):
            if _PROMPT in shape:
                shape[_PROMPT] = None  # said once
        self._prompt = prompt
        self._done = done
        self._final = final
        self._finished = self._paid = False
        self._running = running
        self._known = list(known)
        self._stops = stops
        self.ended = False
        """Whether a stop string ended the answer: nothing more of the continuation is of use."""

    def feed(self, event: Event) -> bytes:
        """What one event becomes; raises Unlike."""
        if event.data == b"[DONE]":
            return self.close() if self._finished and not self._paid else DONE
        said = event.json()
        if not isinstance(said, dict):
            return event.raw
        choices = said.get("choices")
        if not choices:
            if choices is None:
                return event.raw
            self._paid = True
            return self._event({"choices": []}, said, self._usage(said.get("usage")))
        choice = choices[0]
        ids = choice.get("token_ids") or []
        text, reason, stop = choice.get("text") or "", choice.get("finish_reason"), choice.get("stop_reason")
        tokens = len(ids)
        if self._known:
            ids = self._without_known(ids)
        self._done += len(ids)
        if self._stops is not None:
            text, matched = self._stops.feed(text, tokens, last=reason is not None)
            if matched is not None:
                reason, stop, self.ended = "stop", matched, True
        self._finished = self._finished or reason is not None
        if tokens and not ids and not text and reason is None:
            return b""  # all of it was shown before
        usage = self._usage(self._said or said.get("usage")) if self._running else None
        out = self._event({"choices": [self._like_the_sample(text, reason, stop, ids)]}, said, usage)
        return out + self.close() if self.ended else out

    def close(self) -> bytes:
        """The end of a stream whose last choice has its finish reason."""
        return self._event({"choices": []}, {}, self._usage(None)) + DONE if self._final else DONE

    def _without_known(self, ids: list[int]) -> list[int]:
        """Those that were not shown yet."""
        while ids and self._known:
            if ids[0] != self._known[0]:
                raise Unlike("its tokens are others")
            ids = ids[1:]
            del self._known[0]
            self._done += 1
        return ids

    def _like_the_sample(self, text: str, reason: Any, stop: Any, ids: list[int]) -> dict[str, Any]:
        choice: dict[str, Any] = {}
        for name, value in self._choice.items():
            if name == "delta":
                choice[name] = {"content": text}
            elif name == "text":
                choice[name] = text
            elif name == "token_ids":
                choice[name] = ids
            elif name == "finish_reason":
                choice[name] = reason
                if reason is not None and "stop_reason" not in self._choice:
                    choice["stop_reason"] = stop
            elif name == "stop_reason":
                choice[name] = stop
            else:
                choice[name] = value
        return choice

    def _usage(self, said: Any) -> dict[str, Any]:
        """The usage of the whole answer so far, with whatever else the other engine says of its own part."""
        usage: dict[str, Any] = dict(said) if isinstance(said, dict) else {}
        done = self._done
        total = {"prompt_tokens": self._prompt, "total_tokens": self._prompt + done, "completion_tokens": done}
        usage = {**total, **usage, **total}
        details = usage.get("prompt_tokens_details")
        if isinstance(details, dict) and isinstance(details.get("cached_tokens"), int):
            usage["prompt_tokens_details"] = {**details, "cached_tokens": min(details["cached_tokens"], self._prompt)}
        return usage

    def _event(self, middle: dict[str, Any], said: dict[str, Any], usage: dict[str, Any] | None) -> bytes:
        whole = {**self._base, **middle}
        if usage is not None:
            whole["usage"] = usage
        for name in _ADDED:
            if name in said:
                whole[name] = said[name]
        return b"data: " + orjson.dumps(whole) + b"\n\n"
