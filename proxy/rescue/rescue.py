"""The way of one stream from a worker that was lost to another one.

Invariants: the client's connection and everything that was sent on it stay as they are; nothing of the other worker's
is shown before its first token is there; what cannot be continued exactly ends honestly, as without a rescue.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import orjson
from tailrace.proxy.asked import whole_number
from tailrace.proxy.fault import DRAINED, FAILURES, Fault, Whose, bad_answer, fault_of
from tailrace.proxy.rescue import request
from tailrace.proxy.rescue.continuation import Continuation
from tailrace.proxy.rescue.errand import Errand
from tailrace.proxy.rescue.exact import is_greedy, obstacle, obstacle_in_prompt
from tailrace.proxy.rescue.question import Question
from tailrace.proxy.rescue.splice import DONE, Splice
from tailrace.proxy.rescue.stops import Stops

if TYPE_CHECKING:
    from tailrace.proxy.body import JsonBody
    from tailrace.proxy.rescue.trail import Trail
    from tailrace.proxy.stream_relay import StreamRelay

log: Final = logging.getLogger("tailrace")
_NO_CHARACTER: Final = "\ufffd"
"""What a tokenizer makes of a character that is not whole."""
_HALF: Final = 3
"""So many tokens may stand for the beginning of one."""


def rescuable(fault: Fault) -> bool:
    """Whether another worker may do better."""
    theirs = fault.whose in (Whose.NETWORK, Whose.ENGINE) or fault.kind == DRAINED.kind
    return theirs and fault.retryable and fault.kind != "total_timeout"


class Rescue(Errand):
    """Asks for the prompt's tokens, for the text of those that came where that is needed, then for what follows."""

    def __init__(self, relay: StreamRelay, trail: Trail, body: JsonBody, fault: Fault, doubt: bool) -> None:
        super().__init__(relay, fault, doubt)
        self._trail = trail
        self._body = body
        self._route = relay.call.route.name
        self._end = b""
        self._prompt: Sequence[int] = ()
        self._most = 0
        self._halves = 0
        self._forgets = False
        self._usage = (False, False)

    # Whether there is a way.

    def possible(self) -> bool:
        """Whether the stream will go on, or come to its end by this rescue; where not, nothing has changed."""
        try:
            if not self._exact():
                return False
            self._usage = _usage_asked(self._body.written("stream_options"))
            if self._trail.finished:
                return self._has_end()
            if not self._has_heir():
                return False
        except FAILURES as error:
            self._log(error)
            return False
        if not self.doubt:
            self.lost(self._fault)
        return True

    def _exact(self) -> bool:
        """Whether the answer can be continued exactly, as far as that is known here."""
        trail, body = self._trail, self._body
        if not trail.sample or trail.obstacle:
            return False
        if not trail.looked_at:
            trail.looked_at = True
            trail.obstacle = obstacle(body, self._route) or obstacle_in_prompt(body, self._route)
        if len(trail.ids) > trail.clean and not trail.finished and not trail.strips and not is_greedy(body):
            trail.obstacle = "tokens were shown without their text"
        return not trail.obstacle

    def _has_end(self) -> bool:
        """The last choice has ended: what the stream owes still is made here, whether its worker comes back or not."""
        trail = self._trail
        self.doubt = False
        self._end = DONE
        if self._relay.unpaid:
            if not trail.prompt:
                return False
            self._end = self._splice(trail.prompt, len(trail.ids)).close()
        return True

    def begin(self) -> None:
        """Go the way that was found possible; a worker that is lost, and not in doubt, has been let go of."""
        if self._end:
            self._end_here()
        else:
            self._set_out()

    def _end_here(self) -> None:
        """End the stream as its worker would have, or, where taps fail at that, with what they failed with."""
        try:
            self._relay.on_data(self._end)
            self._relay.on_end()
        except FAILURES as error:
            self._log(error)
            self._fault = fault_of(error)
            self.give_up()

    def hopeless(self, why: str) -> None:
        """No worker could go on exactly."""
        self._trail.obstacle = why
        self.give_up()

    def goes_on(self) -> None:
        """The worker has something to show."""
        attempt, call, fault = self._attempt, self._call, self._fault
        assert attempt is not None
        assert call.race is not None
        lost = call.race.winner
        assert lost is not None
        attempt.streaming = True
        if self.doubt:
            self._relay.leave(fault)
        if self._forgets:
            # What was not shown is made again, and noted then.
            self._trail.rewind(self._trail.clean, self._trail.clean, len(self._trail.text))
        self._relay.resume(attempt)
        log.info(
            "request %s goes on at worker %s behind token %d, for worker %s was lost (%s%s)",
            call.id, attempt.worker.name, self._trail.clean, lost.worker.name, fault.kind,
            f": {fault.why}" if fault.why else "",
        )  # fmt: skip

    # What the worker is asked and answers.

    def _begin(self) -> None:
        attempt = self._attempt
        assert attempt is not None
        ids = request.prompt_ids(self._body) if self._route == "completions" else None
        if ids is not None:
            self._have_prompt(ids, 0)
        else:
            asked = request.tokenize(self._body, attempt.entry.served, self._route)
            self._ask(request.TOKENIZE, asked, Question(self, attempt, self._tokenized))

    def _tokenized(self, answer: dict[str, Any]) -> None:
        tokens, longest = answer.get("tokens"), answer.get("max_model_len")
        if isinstance(tokens, list) and set(map(type, tokens)) <= {int}:
            self._have_prompt(tokens, longest if isinstance(longest, int) else 0)
        else:
            self.failed(bad_answer("it holds no tokens"))

    def _have_prompt(self, prompt: list[int], longest: int) -> None:
        trail = self._trail
        if trail.prompt and trail.prompt != len(prompt):
            self.hopeless("its prompt has other tokens there")
            return
        self._prompt = prompt
        self._most = request.room(self._body, self._route, len(prompt), longest)
        if trail.clean and (trail.keeps_text or trail.coarse):
            self._ask_for_text()
        else:
            self._go_on("", "")

    def _ask_for_text(self) -> None:
        attempt, trail = self._attempt, self._trail
        assert attempt is not None
        asked = request.detokenize(attempt.entry.served, trail.ids[: trail.clean])
        self._ask(request.DETOKENIZE, asked, Question(self, attempt, self._detokenized))

    def _detokenized(self, answer: dict[str, Any]) -> None:
        """The text of the tokens so far, of which the client has a part: stop strings were looked for in the rest."""
        trail, text = self._trail, answer.get("prompt")
        if not isinstance(text, str):
            self.failed(bad_answer("it holds no text"))
            return
        if text.endswith(_NO_CHARACTER) and trail.coarse:
            # Within an event of several tokens nobody says behind which of them the text ended.
            self._halves += 1
            trail.step_back()
            if self._halves > _HALF or not trail.clean:
                self.hopeless("its tokens end in the middle of a character")
            else:
                self._ask_for_text()
            return
        if not trail.keeps_text:
            self._go_on("", "")
            return
        shown = orjson.loads(b'"' + bytes(trail.text) + b'"')
        if not text.startswith(shown):
            text = " " + text  # some tokenizers take the space in front of a text for granted
        if text.startswith(shown):
            self._go_on(shown, text[len(shown) :])
        else:
            self.hopeless("its tokens have another text there")

    def _go_on(self, shown: str, behind: str) -> None:
        trail, body, attempt = self._trail, self._body, self._attempt
        assert attempt is not None
        ids = trail.ids[: trail.clean]
        known = () if trail.strips else trail.ids[trail.clean :]
        if known and not is_greedy(body):
            self.hopeless("tokens were shown without their text")
            return
        if self._most <= len(ids):
            self.hopeless("nothing is left to be generated")
            return
        stops = None
        if trail.keeps_text:
            least, include = whole_number(body, "min_tokens") or 0, body.flag("include_stop_str_in_output")
            stops = Stops(request.stops_of(body), shown, behind, trail.clean, least=least, include=include)
        prompt, self._prompt = self._prompt, ()
        splice = self._splice(len(prompt), len(ids), known, stops)
        self._forgets = not known
        asked = request.go_on(body, attempt.entry.served, prompt, ids, self._most, self._usage)
        sink = Continuation(self, self._relay, attempt, splice, len(prompt) + len(ids))
        self._ask(request.CONTINUE, asked, sink)

    def _splice(self, prompt: int, done: int, known: Sequence[int] = (), stops: Stops | None = None) -> Splice:
        payload = self._trail.sample
        sample = orjson.loads(payload[payload.index(b"{") :])
        final, running = self._usage
        return Splice(sample, prompt, done, final=final, running=running, known=known, stops=stops)


def _usage_asked(options: memoryview | None) -> tuple[bool, bool]:
    """Whether the engine was asked for usage at the end, and beside each event."""
    if options is None:
        return False, False
    asked = orjson.loads(bytes(options))
    if not isinstance(asked, dict):
        return False, False
    return asked.get("include_usage") is True, asked.get("continuous_usage_stats") is True
