"""What plugins need of the engine beyond the answer: asked for once, read once, removed once.

A stream's usage and token ids are injected into the request only where the client did not ask for them itself, and
whatever was injected never reaches the client or a plugin's tap.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec
import orjson
from tailrace.proxy.body import JsonBody, invalid
from tailrace.proxy.outcome import Outcome, Usage
from tailrace.proxy.plugin import Needs
from tailrace.proxy.sse import Event

if TYPE_CHECKING:
    from tailrace.proxy.call import Call

_TOKEN_IDS = re.compile(rb',\s*"token_ids":\s*(?:\[([0-9,\s]*)\]|null)')
_PROMPT_IDS = re.compile(rb',\s*"prompt_token_ids":\s*(?:\[[0-9,\s]*\]|null)')
_USAGE_ROUTES = frozenset({"chat", "completions"})
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
MAX_TOKEN_IDS = 1 << 17


def ask(call: Call) -> Harvest | None:
    """Add to the request what plugins need, and return the tap that takes it from the answer again."""
    needs = call.chain.pipeline.needs
    body = call.body
    if not needs or body is None or call.route.dialect is None:
        return None
    harvest = Harvest(call, needs)
    if call.route.name in _USAGE_ROUTES:
        if Needs.USAGE in needs and call.stream:
            harvest.strip_usage = _ask_usage(body)
        if Needs.TOKEN_IDS in needs and not body.flag("return_token_ids"):
            body.edit("return_token_ids", b"true")
            harvest.strip_ids = True
    return harvest


def _ask_usage(body: JsonBody) -> bool:
    """Whether the usage chunk had to be asked for on top of what the client asked."""
    raw = body.written("stream_options")
    options: dict[str, msgspec.Raw] = {}
    if raw is not None and bytes(raw).startswith(b"{"):
        try:
            options = _fields(bytes(raw))
        except msgspec.DecodeError:
            raise invalid("'stream_options' is no value that JSON can have.", "stream_options") from None
    if bytes(options.get("include_usage", msgspec.Raw(b""))) == b"true":
        return False
    options["include_usage"] = msgspec.Raw(b"true")
    body.edit("stream_options", msgspec.json.encode(options))
    return True


class Harvest:
    """An Edit that stands before every plugin's tap: fills `call.usage` and `call.token_ids`."""

    def __init__(self, call: Call, needs: Needs) -> None:
        self._call = call
        self._wants_ids = Needs.TOKEN_IDS in needs
        self.strip_usage = False
        self.strip_ids = False
        if self._wants_ids:
            call.token_ids = []

    @property
    def edits(self) -> bool:
        """Whether the client must not see all that the engine sends."""
        return self.strip_usage or self.strip_ids or self._wants_ids

    def feed(self, event: Event) -> tuple[Event, ...]:
        """Take usage and ids from one event."""
        raw = event.raw
        if b'"usage"' in raw:
            usage = read_usage(event.json())
            if usage is not None:
                self._call.usage = usage
                if self.strip_usage:
                    stripped = self._without_usage(event)
                    if stripped is None:
                        return ()
                    event = stripped
        if self._wants_ids and b'"token_ids"' in event.raw:
            self._take_ids(event.raw)
        if self.strip_ids:
            event = Event(_PROMPT_IDS.sub(b"", _TOKEN_IDS.sub(b"", event.raw)))
        return (event,)

    def _take_ids(self, raw: bytes) -> None:
        ids = self._call.token_ids
        for found in _TOKEN_IDS.findall(raw):
            if found and ids is not None and len(ids) < MAX_TOKEN_IDS:
                ids.extend(map(int, found.split(b",")))

    def _without_usage(self, event: Event) -> Event | None:
        """The event as it would have been unasked; None for the chunk that is there for the usage alone."""
        body = event.json()
        if isinstance(body, dict) and not body.get("choices"):
            return None
        edited = JsonBody(event.data, 1 << 30)
        edited.edit("usage", None)
        return event.replaced(edited.render())

    def finish(self, outcome: Outcome) -> tuple[Event, ...]:
        """Nothing is held back."""
        return ()

    def body(self, data: bytes) -> bytes:
        """Take both from a whole answer."""
        try:
            decoded: Any = orjson.loads(data)
        except orjson.JSONDecodeError:
            return data
        self._call.usage = read_usage(decoded) or self._call.usage
        if self._wants_ids:
            self._take_ids(data)
        if self.strip_ids:
            data = _PROMPT_IDS.sub(b"", _TOKEN_IDS.sub(b"", data))
        return data


def read_usage(body: Any) -> Usage | None:
    """The usage of an answer or an event in any of the APIs' spellings, None where it states none."""
    if not isinstance(body, dict):
        return None
    for holder in (body, body.get("message"), body.get("response")):
        if isinstance(holder, dict) and isinstance(holder.get("usage"), dict):
            return _usage_of(holder["usage"])
    return None


def _usage_of(usage: dict[str, Any]) -> Usage:
    details = usage.get("prompt_tokens_details") or usage.get("input_tokens_details") or {}
    cached = details.get("cached_tokens") if isinstance(details, dict) else 0
    return Usage(
        prompt=_count(usage.get("prompt_tokens", usage.get("input_tokens"))),
        completion=_count(usage.get("completion_tokens", usage.get("output_tokens"))),
        cached=_count(cached or usage.get("cache_read_input_tokens")),
    )


def _count(value: object) -> int:
    return value if isinstance(value, int) and 0 <= value < 1 << 40 else 0
