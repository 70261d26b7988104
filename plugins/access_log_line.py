"""The line of a finished call: text put together, which takes a tenth of what a dictionary and its encoding take."""

from __future__ import annotations

import re
from time import gmtime, strftime, time_ns
from typing import TYPE_CHECKING, Final

import orjson
from tailrace.proxy.errors import code_of

if TYPE_CHECKING:
    from tailrace.proxy.call import Call
    from tailrace.proxy.outcome import Outcome

_LABEL: Final = 64
_NAME: Final = 128
_UNSAFE: Final = re.compile(r"[^\x20-\x7e]")
_REMEMBERED: Final = 4096
_texts: Final[dict[str, str]] = {}
_THOUSANDTHS: Final = [f".{part:03d}" for part in range(1000)]
_NUMBERS: Final = [str(number) for number in range(1024)]


class Lines:
    """Makes lines; what they say of the time is the same for a second."""

    __slots__ = ("_prefix", "_second")

    def __init__(self) -> None:
        self._second = -1
        self._prefix = ""

    def line(self, call: Call, outcome: Outcome) -> bytes:
        """JSON and a line feed, at the present time."""
        ms = time_ns() // 1_000_000
        second = ms // 1000
        if second != self._second:
            self._second = second
            self._prefix = strftime("%Y-%m-%dT%H:%M:%S", gmtime(second))
        return line_of(call, outcome, self._prefix + _THOUSANDTHS[ms % 1000] + "Z")


def line_of(call: Call, outcome: Outcome, time: str) -> bytes:
    """JSON and a line feed; `time` is written as it is."""
    head = call.head
    route = call.route
    started = call.started_ns
    pieces = [
        '{"time":"',
        time,
        '","request_id":"',
        call.id,
        '","client":',
        _text(call.peer.address),
        ',"method":"',
        head.method,
        '","route":',
        _text(route.name),
        ',"path":',
        _text(route.path),
        ',"status":',
        _number(outcome.status),
        ',"ending":',
        _text(outcome.ending),
        ',"duration_ms":',
        _ms(outcome.finished_ns - started),
        ',"stream":true' if call.stream else ',"stream":false',
        ',"attempts":',
        _number(len(call.tries)),
        ',"bytes_in":',
        _number(call.size),
        ',"generation":',
        _number(call.chain.generation),
    ]
    trace = call.trace
    if trace is not None:
        pieces += (',"trace_id":"', trace.trace_id, '"')
    if call.model:
        pieces.append(',"model":')
        pieces.append(_text(call.model[:_NAME]))
    if call.tries:
        _add_worker(pieces, call)
    elif call.source:
        pieces += (',"source":', _text(call.source))
    if outcome.first_content_ns:
        pieces.append(',"ttft_ms":')
        pieces.append(_ms(outcome.first_content_ns - started))
    if outcome.delivered_bytes:
        pieces.append(',"bytes_out":')
        pieces.append(_number(outcome.delivered_bytes))
    if outcome.fault is not None or outcome.usage is not None:
        pieces.append(_end(outcome))
    label = head.folded.get(b"x-request-id")
    if label is not None:
        pieces += (',"client_request_id":', _json(_UNSAFE.sub("?", label[:_LABEL].decode("latin-1"))))
    pieces.append("}\n")
    return "".join(pieces).encode()


def _add_worker(pieces: list[str], call: Call) -> None:
    """Whose answer was shown, or whose was waited for last."""
    attempt = call.tries[-1]
    race = call.race
    if race is not None and race.winner is not None:
        attempt = race.winner
    pieces.append(',"worker":')
    pieces.append(_text(attempt.worker.name))
    # A path that is passed on has an entry of its own, and no model.
    if call.route.entry is None:
        pieces.append(',"served_model":')
        pieces.append(_text(attempt.entry.served))


def _end(outcome: Outcome) -> str:
    """What went wrong and what was used, where that is known."""
    line = ""
    fault = outcome.fault
    if fault is not None:
        line += f',"fault":{_text(fault.kind)},"whose":{_text(fault.whose)},"code":{_json(code_of(fault))}'
    usage = outcome.usage
    if usage is not None:
        line += f',"usage":{{"prompt":{usage.prompt},"completion":{usage.completion},"cached":{usage.cached}}}'
    return line


def _ms(ns: int) -> str:
    """Nanoseconds as milliseconds, to the microsecond."""
    us = ns // 1000
    ms = us // 1000
    return _number(ms) + _THOUSANDTHS[us - ms * 1000]


def _number(number: int) -> str:
    """A whole number; of the small ones, which are most, the text is there."""
    return _NUMBERS[number] if 0 <= number < len(_NUMBERS) else str(number)


def _text(text: str) -> str:
    """A string as JSON; the few that lines repeat are remembered."""
    known = _texts.get(text)
    if known is None:
        known = _json(text)
        if len(_texts) >= _REMEMBERED:
            _texts.clear()
        _texts[text] = known
    return known


def _json(value: str | int) -> str:
    return orjson.dumps(value).decode()
