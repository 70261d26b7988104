"""Where the time of a call went: stages that add up to all of it.

    client_edge   the request's body on its way in
    gateway       the relay's own work, plugins included
    queue         waits for a turn: here, in the sidecar, and in the engine where that says so
    retry         attempts that came to nothing before the one that did, and pauses for one more, also if none began
    network       opening a connection, and the way there and back where a sidecar says how long the rest took
    prefill       from the worker's turn to its first content; without a sidecar, the way there and back too
    decode        from the first content to the end, with the way to another worker where a stream went on there

An answer that is no stream has its decoding within `prefill`, unless its engine tells them apart.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tailrace.proxy.fault import PREEMPTED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tailrace.proxy.attempt import Attempt
    from tailrace.proxy.call import Call

NAMES: Final = ("client_edge", "gateway", "queue", "retry", "network", "prefill", "decode")
_US: Final = 1000
_PAUSE: Final = 1_000_000
_WHOLE: Final[list[bytes]] = [b"%d" % ms for ms in range(1024)]
_THOUSANDTHS: Final[list[bytes]] = [b".%03d" % us for us in range(1000)]
_TAIL: Final = 768
_METRICS: Final = b'"metrics":{"'
_QUEUED: Final = re.compile(rb'"queue_time_ms":\s*([0-9.]{1,24})(?:[eE]-[0-9]{1,2})?[,}]')
_GENERATED: Final = re.compile(rb'"generation_time_ms":\s*([0-9.]{1,24})[,}]')


class Stages:
    """Nanoseconds of each stage; their sum is `total`."""

    __slots__ = ("client_edge", "decode", "gateway", "network", "prefill", "queue", "retry", "total")

    def __init__(self) -> None:
        self.client_edge = self.gateway = self.queue = self.retry = 0
        self.network = self.prefill = self.decode = self.total = 0

    def told(self) -> bytes:
        """The value of a Server-Timing header: what took any time, in milliseconds."""
        told: list[bytes] = []
        if self.client_edge > 0:
            _tell(told, b", client_edge;dur=", self.client_edge)
        if self.gateway > 0:
            _tell(told, b", gateway;dur=", self.gateway)
        if self.queue > 0:
            _tell(told, b", queue;dur=", self.queue)
        if self.retry > 0:
            _tell(told, b", retry;dur=", self.retry)
        if self.network > 0:
            _tell(told, b", network;dur=", self.network)
        if self.prefill > 0:
            _tell(told, b", prefill;dur=", self.prefill)
        if self.decode > 0:
            _tell(told, b", decode;dur=", self.decode)
        if self.total > 0:
            _tell(told, b", total;dur=", self.total)
        return b"".join(told)[2:]


def _tell(told: list[bytes], name: bytes, took: int) -> None:
    """Nanoseconds as milliseconds with three digits more, behind what they are of."""
    us = took // _US
    ms = us // 1000
    told.append(name)
    # Formatting anew costs several times as much as looking up, and there are six on every answer.
    told.append(_WHOLE[ms] if ms < len(_WHOLE) else b"%d" % ms)
    told.append(_THOUSANDTHS[us - ms * 1000])


def stages_of(call: Call, now_ns: int, told: Told | None = None) -> Stages:
    """The stages of a call up to now; `told` is what its engine said at the end of a stream, if somebody read it."""
    stages = Stages()
    started = call.started_ns
    arrived = call.received_ns or started
    stages.total = now_ns - started
    stages.client_edge = arrived - started
    stages.queue = waited = call.waited_ns
    tries = call.tries
    if not tries:
        stages.gateway = now_ns - arrived - waited
        return stages
    race = call.race
    shown = tries[-1] if race is None or race.winner is None else first_shown(tries, race.winner)
    began = shown.started_ns
    stages.gateway = tries[0].started_ns - arrived - (waited - call.requeued_ns)
    stages.retry = began - tries[0].started_ns - call.requeued_ns
    sent = shown.sent_ns
    first = shown.first_content_ns
    until = first or min(shown.ended_ns or now_ns, now_ns)
    if not first:
        _behind(stages, call, shown, now_ns - until)
    if not sent:
        stages.network = until - began
        return stages
    _of_worker(stages, shown, sent - began, until - sent, told)
    if first:
        if shown.streaming:
            stages.decode = now_ns - first
        else:
            # From the last byte of a whole answer on, the time is ours.
            stages.gateway += now_ns - first
    return stages


def first_shown(tries: Sequence[Attempt], winner: Attempt) -> Attempt:
    """The attempt whose content came first: the winner, but for a stream that went on elsewhere."""
    if winner.why != "rescue":
        return winner
    return next(attempt for attempt in tries if attempt.first_content_ns)


def _behind(stages: Stages, call: Call, shown: Attempt, took: int) -> None:
    """The time behind an attempt that came to nothing: in line once more, in a pause, or, if it is short, our own."""
    if shown.fault is PREEMPTED:
        # What of it was counted when its turn came does not lie before that attempt.
        stages.queue += took - call.requeued_ns
        stages.retry += call.requeued_ns
    elif took >= _PAUSE:
        stages.retry += took
    else:
        stages.gateway += took


def _of_worker(stages: Stages, shown: Attempt, opening: int, took: int, told: Told | None) -> None:
    """Divide the time from the sending to the first content, or to a whole answer."""
    total = queued = decoded = 0
    if shown.status:
        said = Told.read(shown.head.stages) if shown.head.stages else None
        if said is None and shown.first_content_ns and not shown.streaming and shown.held:
            said = engine_told(shown.held[-1])
        if said is not None:
            total, queued, decoded = said.total_ns, said.queue_ns, said.decode_ns
    if told is not None:
        queued += told.queue_ns
    transit = min(max(took - total, 0), took) if total else 0
    stages.network = opening + transit
    rest = took - transit
    queued = min(queued, rest)
    stages.queue += queued
    rest -= queued
    decoded = min(decoded, rest)
    stages.decode = decoded
    stages.prefill = rest - decoded


class Told:
    """What a worker says of its own stages; nanoseconds, 0 for what it does not say."""

    __slots__ = ("decode_ns", "queue_ns", "total_ns")

    def __init__(self, total_ns: int, queue_ns: int, decode_ns: int) -> None:
        self.total_ns = total_ns
        self.queue_ns = queue_ns
        self.decode_ns = decode_ns

    def written(self) -> bytes:
        """As a header's value: microseconds."""
        return b"%d %d %d" % (self.total_ns // _US, self.queue_ns // _US, self.decode_ns // _US)

    @classmethod
    def read(cls, value: bytes) -> Told | None:
        """The other way round; None where that is no such value."""
        parts = value.split(b" ")
        if len(parts) != 3 or len(value) > 48:
            return None
        total, queued, decoded = parts
        if not (total.isdigit() and queued.isdigit() and decoded.isdigit()):
            return None
        return cls(int(total) * _US, int(queued) * _US, int(decoded) * _US)


def engine_told(text: bytes) -> Told | None:
    """What an engine says at the end of an answer, or in its last event; None where it says nothing.

    vLLM does with `--enable-per-request-metrics`.
    """
    at = text.rfind(_METRICS, max(0, len(text) - _TAIL))
    if at < 0:
        return None
    queued, generated = _QUEUED.search(text, at), _GENERATED.search(text, at)
    return Told(0, _ns(queued), _ns(generated))


def _ns(found: re.Match[bytes] | None) -> int:
    if found is None:
        return 0
    try:
        return int(float(found.group(0).rpartition(b":")[2].rstrip(b",}")) * 1e6)
    except ValueError:
        return 0
