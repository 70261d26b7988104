"""What a stream leaves behind that another worker needs to go on with it: the ids of its tokens, and little else.

Ids are asked for on the rescue's behalf and taken out again. An engine holds back the bytes of a character until it is
whole, and begins an answer anew, prompt included, where it is asked to go on inside one. So a stream goes on behind the
last token after which all text was shown; the ids of what came later are dropped, and sampled again.
"""

from __future__ import annotations

import re
from array import array
from typing import Final

MOST_IDS: Final = 1 << 17
"""A longer answer is not continued: what is kept of one stream is bounded."""
IDS: Final = re.compile(rb'"token_ids"\s*:\s*\[([0-9,\s]*)\]')
_PROMPT_IDS: Final = re.compile(rb'"prompt_token_ids"\s*:\s*\[')
_PROMPT: Final = b'"prompt_token_ids"'
_TEXT: Final = re.compile(rb'(?:[^"\\]|\\.)*')
_QUOTE: Final = ord('"')
NO_IDS: Final = b'"token_ids":null'
_NO_PROMPT_IDS: Final = b'"prompt_token_ids":null'
_REASON: Final = b'finish_reason":"'
# What engines write of answers that a parser of theirs takes apart, be it with nothing in it.
_PARSED: Final = re.compile(rb'"(?:reasoning|reasoning_content)"\s*:\s*"|"tool_calls"\s*:\s*\[\s*\{')


class Trail:
    """The account of one stream; `mark` is what stands before the text of an event.

    `clean` ids are those behind which all text was shown. `obstacle` says why the answer cannot be continued exactly,
    empty as long as it can.
    """

    __slots__ = (
        "_coarse",
        "_mark",
        "_strips",
        "beyond",
        "clean",
        "finished",
        "ids",
        "keeps_text",
        "looked_at",
        "obstacle",
        "patience",
        "prompt",
        "sample",
        "text",
    )

    def __init__(self, mark: bytes, *, keeps_text: bool, patience: float) -> None:
        self._mark = mark
        self.patience = patience
        """Seconds of silence after which the worker counts as lost."""
        self._strips = False
        self.keeps_text = keeps_text
        self.ids = array("I")
        self.beyond = 0
        """How many more tokens came than are kept."""
        self.clean = 0
        self._coarse = -1
        self.text = bytearray()
        """What was shown, escaped as in JSON; kept for requests with stop strings only."""
        self.prompt = 0
        """How many tokens the prompt has, 0 where the engine did not say."""
        self.sample = b""
        """An event with content: what those of the other worker are to look like."""
        self.finished = False
        self.obstacle = ""
        self.looked_at = False
        """Whether the request was looked through for obstacles."""

    def strip(self) -> None:
        """Take the ids out of events: the client did not ask for them."""
        self._strips = True

    @property
    def strips(self) -> bool:
        """Whether ids are taken out."""
        return self._strips

    @property
    def coarse(self) -> bool:
        """Whether the last text came with several ids: behind the last of them a character may stand open."""
        return self._coarse == self.clean

    def open(self, data: bytes) -> bytes:
        """What goes on of the first bytes of a stream, in which the prompt's ids are."""
        found = _PROMPT_IDS.search(data)
        if found is None:
            return data
        # There may be a hundred thousand, which a pattern takes three times as long to go through.
        begin = found.end()
        end = data.find(b"]", begin)
        if end < 0 or data.find(b"[", begin, end) >= 0:
            return data
        self.prompt = data.count(b",", begin, end) + 1
        return data[: found.start()] + _NO_PROMPT_IDS + data[end + 1 :] if self._strips else data

    def take(self, raw: bytes) -> bytes:
        """Note what one event brings; what goes on of it."""
        if not self.prompt and raw.find(_PROMPT) >= 0:
            raw = self.open(raw)  # it was not whole when the stream was opened
        found = IDS.search(raw)
        if found is None:
            at = raw.find(self._mark)
            if at >= 0 and raw[at + len(self._mark)] != _QUOTE:
                self.obstacle = "text came without its tokens"
            if raw.find(_REASON) >= 0:
                self.finished = True
            return raw
        self.note(raw, found.group(1))
        if _PARSED.search(raw) is not None:
            self.obstacle = "the engine takes its text apart"
        if raw.find(_REASON) >= 0:
            self.finished = True
        return raw[: found.start()] + NO_IDS + raw[found.end() :] if self._strips else raw

    def note(self, raw: bytes, ids: bytes) -> None:
        """Note the ids and the text of an event that has both."""
        at = raw.find(self._mark)
        shows = False
        if at >= 0:
            begin = at + len(self._mark)
            shows = raw[begin] != _QUOTE
            if shows and self.keeps_text:
                text = _TEXT.match(raw, begin)
                assert text is not None
                self.text += text.group()
        self.add(ids, shows=shows)
        if shows and not self.sample:
            self.sample = raw

    def add(self, ids: bytes, *, shows: bool) -> None:
        """Note ids as they are written, and whether text was shown with them."""
        held = self.ids
        if len(held) >= MOST_IDS:
            self.obstacle = "it is too long"
            self.beyond += ids.count(b",") + 1
            return
        try:
            if ids.find(b",") < 0:
                if ids:
                    held.append(int(ids))
            else:
                held.extend([int(number) for number in ids.split(b",")])
                if shows:
                    self._coarse = len(held)
        except (ValueError, OverflowError):
            self.obstacle = "its ids are no numbers"
        if shows:
            self.clean = len(held)

    def step_back(self) -> None:
        """The text ended behind the token before."""
        self.clean -= 1
        self._coarse = self.clean

    def rewind(self, count: int, clean: int, text: int) -> None:
        """Forget what was noted since the numbers were these."""
        del self.ids[count:]
        del self.text[text:]
        self.clean = clean
