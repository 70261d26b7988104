"""What plugins need of the engine beyond the answer: asked for once, read once, removed once.

A stream's usage and token ids are injected into the request only where the client did not ask for them itself, and
whatever was injected never reaches the client or a plugin's tap.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec
from tailrace.proxy.body import JsonBody, invalid
from tailrace.proxy.dialects import Sign
from tailrace.proxy.outcome import Outcome, Usage
from tailrace.proxy.sse import Event
from tailrace.proxy.usage import entry_of, usage_in

if TYPE_CHECKING:
    from tailrace.proxy.call import Call
    from tailrace.proxy.rescue.trail import Trail

Follower = Callable[[Usage, int], None]
OPTIONS: Final = "stream_options"
MAX_TOKEN_IDS: Final = 1 << 17
_TOKEN_IDS: Final = re.compile(rb',\s*"token_ids":\s*(?:\[([0-9,\s]*)\]|null)')
_PROMPT_IDS: Final = re.compile(rb',\s*"prompt_token_ids":\s*(?:\[[0-9,\s]*\]|null)')
_INDEX: Final = re.compile(rb'"index"\s*:\s*(\d{1,6})')
_NO_CHOICES: Final = re.compile(rb'"choices"\s*:\s*\[\s*\]')
_REASON: Final = re.compile(rb'_reason"\s*:\s*"')
_USAGE_ROUTES: Final = frozenset({"chat", "completions"})
_fields: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_MODEL: Final = re.compile(rb'"model"\s*:\s*"((?:[^"\\]|\\.){0,256})"')
_SHORTLY: Final = b'"model":"'
_NAME: Final = 256
_SAMPLE: Final = 1024
_TRUE: Final = b"true"


def ask(call: Call) -> Harvest | None:
    """Add to the request what plugins need, and return what takes it from the answer again."""
    pipeline = call.chain.pipeline
    body = call.body
    route = call.route
    if body is None or route.local is not None or not route.expects:
        return None
    harvest = Harvest(call)
    if route.name in _USAGE_ROUTES:
        if call.stream and pipeline.wants_usage:
            # Where every token is counted anyway, the engine need not.
            harvest.ask_usage(body, running=pipeline.wants_running_usage and call.trail is None)
        if pipeline.wants_ids:
            harvest.takes_ids = True
            call.token_ids = []
        trail = harvest.trail = call.trail
        if (pipeline.wants_ids or trail is not None) and not body.flag("return_token_ids"):
            body.edit("return_token_ids", _TRUE)
            harvest.asked_ids = True
            harvest.strip_ids = trail is None
            if trail is not None:
                trail.strip()
    return harvest


class Harvest:
    """An Edit that stands before every plugin's tap: knows what the answer has used so far, and fills `token_ids`.

    `prompt`, `completion` and `cached` are what the engine last said; `pieces` are those of the stream that came since.
    """

    # Class attributes are the defaults: most calls set few of them.
    strip_usage = False
    strip_running = False
    strip_ids = False
    asked_ids = False
    trail: Trail | None = None
    takes_ids = False
    """Whether every event has to be looked at for ids."""
    prompt = 0
    completion = 0
    cached = 0
    pieces = 0
    reported = False
    running = False
    """Whether events with content have brought usage of their own."""
    followers: tuple[Follower, ...] = ()
    original: bytes | None = None
    """The options as the client wrote them."""
    _sample = b""
    _choices: dict[int, tuple[int, int]] | None = None

    def __init__(self, call: Call) -> None:
        self._call = call

    def follow(self, follower: Follower) -> None:
        """Hear of the usage of which the client's kernel has the bytes, with how many these are; once a read at most.

        It is called outside the call's context, must be quick, and must not keep the Usage.
        """
        self.followers = (*self.followers, follower)

    # The request.

    def ask_usage(self, body: JsonBody, *, running: bool) -> None:
        """Have the engine say what a stream used at its end, and with each event if `running`."""
        raw = body.written(OPTIONS)
        options: dict[str, msgspec.Raw] = {}
        if raw is not None:
            self.original = bytes(raw)
            if self.original.startswith(b"{"):
                try:
                    options = _fields(self.original)
                except msgspec.DecodeError:
                    raise invalid(f"'{OPTIONS}' is no value that JSON can have.", OPTIONS) from None
        self.strip_usage = _ask(options, b"include_usage")
        self.strip_running = running and _ask(options, b"continuous_usage_stats")
        if self.strip_usage or self.strip_running:
            body.edit(OPTIONS, msgspec.json.encode(options))

    @property
    def injected(self) -> bool:
        """Whether the request has an option that its client did not give it."""
        return self.strip_usage or self.strip_running or self.asked_ids

    def render_unasked(self, body: JsonBody, served: bytes | None) -> bytes:
        """The body for a worker that refuses the options that were added."""
        kept = body.snapshot()
        if self.strip_usage or self.strip_running:
            body.edit(OPTIONS, self.original)
        if self.asked_ids:
            body.edit("return_token_ids", None)
        try:
            return body.render({"model": served} if served is not None else None)
        finally:
            body.restore(kept)

    # The answer.

    def usage(self) -> Usage | None:
        """What the answer has used so far, None where nothing of one has come."""
        if self.pieces:
            return Usage(self.prompt, self.completion + self.pieces, self.cached, True)
        return Usage(self.prompt, self.completion, self.cached) if self.reported else None

    def feed(self, event: Event) -> tuple[Event, ...]:
        """Take usage and ids from one event."""
        raw = event.raw
        if not self._sample:
            self._sample = raw[:_SAMPLE]
        if raw.find(b'"usage"') >= 0:
            taken = self._take_usage(event)
            if taken is None:
                return ()
            event = taken
        elif self.trail is None or raw.find(b'"token_ids":[') < 0:
            self._count(event)
        if self.takes_ids and event.raw.find(b'"token_ids"') >= 0:
            self._take_ids(event.raw)
        if self.trail is not None:
            event = self._traced(self.trail, event)
        elif self.strip_ids:
            event = Event(_PROMPT_IDS.sub(b"", _TOKEN_IDS.sub(b"", event.raw)))
        return (event,)

    def _traced(self, trail: Trail, event: Event) -> Event:
        """Note what an event brings for a rescue; every token counts as completion from then on."""
        before = len(trail.ids) + trail.beyond
        kept = trail.take(event.raw)
        done = len(trail.ids) + trail.beyond
        if done > before:
            self.note(trail.prompt or self.prompt, done, self.cached)
        return event if kept is event.raw else Event(kept)

    def _count(self, event: Event) -> None:
        """Count an event that says nothing of usage, if it brings content."""
        dialect = self._call.route.dialect
        if dialect is not None and dialect.judge(event) is Sign.CONTENT:
            self.pieces += 1

    def _take_usage(self, event: Event) -> Event | None:
        """Note the usage in an event; the event as it would be unasked, None where it is there for that alone."""
        raw = event.data
        found = usage_in(raw)
        counted = self._call.route.name in _USAGE_ROUTES
        alone = counted and _NO_CHOICES.search(raw) is not None and _has_usage(raw)
        if found is None:
            self._count(event)  # some engines write a null in every event but the last
        elif not counted:
            self._note_begun(found)
        elif alone or (not self.running and _REASON.search(raw) is not None):
            self.note(found.prompt, found.completion, found.cached)
        else:
            self._note_running(raw, found)
        if alone:
            return None if self.strip_usage else event
        # Behind running usage, that of the last event with content is running usage too.
        unasked = self.strip_running if self.running else self.strip_usage
        return _without_usage(event) if counted and unasked else event

    @property
    def model(self) -> str:
        """The model that the engine says it is, as far as that stands near the beginning of its answer."""
        sample = self._sample
        at = sample.find(_SHORTLY)
        end = sample.find(b'"', at + len(_SHORTLY)) if at >= 0 else -1
        if end >= 0:
            name = sample[at + len(_SHORTLY) : end]
            if len(name) <= _NAME and name.find(b"\\") < 0:
                return name.decode(errors="replace")
        found = _MODEL.search(sample)
        return "" if found is None else found.group(1).decode(errors="replace")

    def note(self, prompt: int, completion: int, cached: int) -> None:
        """The engine says what the whole answer has used so far."""
        self.prompt = prompt
        self.completion = completion
        self.cached = cached
        self.pieces = 0
        self.reported = True

    def _note_running(self, raw: bytes, found: Usage) -> None:
        """Usage beside content: that of one choice, where there are several."""
        self.running = True
        index = _INDEX.search(raw)
        choice = int(index.group(1)) if index is not None else 0
        choices = self._choices
        if choices is None:
            if not choice:
                self.note(found.prompt, found.completion, found.cached)
                return
            choices = self._choices = {0: (self.prompt, self.completion)} if self.reported else {}
        choices[choice] = found.prompt, found.completion
        # The choices of one prompt stand side by side.
        prompts = {number // self._each: prompt for number, (prompt, _) in choices.items()}
        self.note(sum(prompts.values()), sum([completion for _, completion in choices.values()]), found.cached)

    @property
    def _each(self) -> int:
        """How many choices each prompt gets."""
        body = self._call.body
        count = None if body is None else body.get("n")
        return count if isinstance(count, int) and count > 0 else 1

    def _note_begun(self, found: Usage) -> None:
        """Usage in an API whose streams state it at their beginning and at their end."""
        self.note(found.prompt or self.prompt, found.completion or self.completion, found.cached or self.cached)

    def _take_ids(self, raw: bytes) -> None:
        ids = self._call.token_ids
        for found in _TOKEN_IDS.findall(raw):
            if found and ids is not None and len(ids) < MAX_TOKEN_IDS:
                ids.extend(map(int, found.split(b",")))

    def foresee(self, last: bytes) -> None:
        """Note the usage in a last event that has not been fed yet: plugins are asked before that leaves."""
        found = usage_in(last)
        if found is not None and self._call.route.name not in _USAGE_ROUTES:
            self._note_begun(found)

    def finish(self, outcome: Outcome) -> tuple[Event, ...]:
        """Nothing is held back."""
        return ()

    def body(self, data: bytes) -> bytes:
        """Take both from a whole answer."""
        self._sample = data[:_SAMPLE]
        found = usage_in(data)
        if found is not None:
            self.note(found.prompt, found.completion, found.cached)
        if self.takes_ids:
            self._take_ids(data)
        if self.asked_ids:
            data = _PROMPT_IDS.sub(b"", _TOKEN_IDS.sub(b"", data))
        return data


def _ask(options: dict[str, msgspec.Raw], name: bytes) -> bool:
    """Set an option; whether it was not set before."""
    key = name.decode()
    if bytes(options.get(key, msgspec.Raw(b""))) == _TRUE:
        return False
    options[key] = msgspec.Raw(_TRUE)
    return True


def _has_usage(text: bytes) -> bool:
    """Whether usage is stated, be it an empty one; a null is not."""
    entry = entry_of(text)
    return entry is not None and entry.group(1) != b"null"


def _without_usage(event: Event) -> Event:
    raw = event.raw
    entry = entry_of(raw)
    return event if entry is None else Event(raw[: entry.start()] + raw[entry.end() :])
