"""From an answer that went to a client to one that is kept: only what is whole, and in the form it is kept in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
import orjson
from tailrace.proxy.allowing import strayed
from tailrace.proxy.outcome import Ending, Usage
from tailrace.proxy.sse import Splitter
from tailrace.proxy.stored.canonical import GENERATING
from tailrace.proxy.stored.fold import fold
from tailrace.proxy.stored.long_numbers import has_long_number
from tailrace.proxy.stored.whole import has_stream_form, is_whole
from tailrace.proxy.wire import EVENTS, JSON

if TYPE_CHECKING:
    from tailrace.proxy.attempt import Attempt
    from tailrace.proxy.call import Call
    from tailrace.proxy.outcome import Outcome
    from tailrace.proxy.sse import Event

_TIMES: Final = b'"metrics":'
"""What an engine says of the time that this one answer took."""
_COMPLETED: Final = "response.completed"
_walk: Final = msgspec.json.Decoder(msgspec.Raw).decode


class Keep:
    """An Edit that changes nothing and collects an answer, up to `limit` bytes of it."""

    __slots__ = ("_limit", "_pieces", "_size")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._pieces: list[bytes] = []
        self._size = 0

    def feed(self, event: Event) -> tuple[Event, ...]:
        """One event of a stream."""
        self._take(event.raw)
        return (event,)

    def body(self, data: bytes) -> bytes:
        """A whole unary answer."""
        self._take(data)
        return data

    def finish(self, outcome: Outcome) -> tuple[Event, ...]:
        """Nothing is held back."""
        return ()

    def _take(self, data: bytes) -> None:
        self._size += len(data)
        if self._size <= self._limit:
            self._pieces.append(data)
        else:
            self._pieces.clear()

    @property
    def taken(self) -> bytes | None:
        """The answer, None where it is longer than the limit."""
        return b"".join(self._pieces) if self._size <= self._limit else None


def unfit(call: Call) -> str | None:
    """Why an answer that begins is nothing for others who ask the same, in a word; None where it is."""
    winner = None if call.race is None else call.race.winner
    if winner is None or not _is_of_its_model(call, winner):
        return "other_model"
    # Whoever gets it again hears of no coding, and of no other type.
    return "form" if winner.head.coded or winner.head.kind not in (JSON, EVENTS) else None


def _is_of_its_model(call: Call, winner: Attempt) -> bool:
    """Whether it is the model that was asked for which answers, and not one that the call fell back to."""
    return winner.entry is call.entry and strayed(winner) is None


def ended_well(call: Call, outcome: Outcome) -> bool:
    """Whether a call's answer came whole from a worker of the model that was asked for."""
    winner = None if call.race is None else call.race.winner
    if winner is None or not _is_of_its_model(call, winner):
        return False
    return outcome.ending is Ending.COMPLETED and outcome.status == 200


def stored_form(call: Call, taken: bytes, *, streamed: bool, usage: Usage | None, choices: int = 1) -> bytes | None:
    """An answer in the form in which it is kept, None where it is not to be kept."""
    route = call.route.name
    if route not in GENERATING:
        if route == "responses":
            return taken if _ended_completed(taken, streamed=streamed) else None
        return taken if _is_json(taken) else None
    answer = unary_form(route, taken, streamed=streamed, usage=usage)
    if answer is None or not is_whole(route, answer, choices) or not has_stream_form(route, answer):
        return None
    if not streamed and taken.rfind(_TIMES) < 0:
        return taken
    # A copy: what a serialiser gives has several times the memory that it needs.
    return bytes(memoryview(orjson.dumps(answer)))


def unary_form(route: str, taken: bytes, *, streamed: bool, usage: Usage | None) -> dict[str, Any] | None:
    """An answer of chat, completions or messages as one object, whole or cut short; None where it has no such form."""
    if streamed:
        folded = fold(route, taken)
        if folded is not None and folded.get("usage") is None:
            if usage is None or usage.estimated:
                return None
            folded["usage"] = _written(usage)
        return folded
    if route == "messages" and has_long_number(taken):
        return None
    try:
        answer: Any = orjson.loads(taken)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(answer, dict):
        return None
    if taken.rfind(_TIMES) >= 0:
        answer.pop("metrics", None)
    return answer


def _is_json(taken: bytes) -> bool:
    """Whether an answer is whole as JSON, without building what is in it: vectors are long."""
    try:
        _walk(taken)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def _written(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.prompt,
        "total_tokens": usage.prompt + usage.completion,
        "completion_tokens": usage.completion,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
    }


def _ended_completed(taken: bytes, *, streamed: bool) -> bool:
    """Whether an answer of the Responses API is whole; engines call a stream completed that was cut short, too."""
    try:
        if not streamed:
            answer: Any = orjson.loads(taken)
        else:
            splitter = Splitter(len(taken) + 1)
            told = [event for event in (*splitter.feed(taken), *splitter.finish()) if event.data]
            last: Any = orjson.loads(told[-1].data) if told else None
            answer = last.get("response") if isinstance(last, dict) and last.get("type") == _COMPLETED else None
    except orjson.JSONDecodeError:
        return False
    return isinstance(answer, dict) and is_whole("responses", answer)
