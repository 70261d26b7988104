"""Which streams may go on with another worker, and what became of them: what `rescue` does."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from tailrace.proxy.fault import Reject
from tailrace.proxy.outcome import Ending
from tailrace.proxy.rescue.exact import obstacle
from tailrace.proxy.rescue.trail import Trail

if TYPE_CHECKING:
    from tailrace.proxy.attempt import Attempt
    from tailrace.proxy.call import Call
    from tailrace.proxy.fleet import Worker
    from tailrace.proxy.outcome import Outcome

log: Final = logging.getLogger("tailrace")


class Streams:
    """Of one chain in one process; `silence` is the seconds after which a stream's worker counts as lost."""

    __slots__ = ("_silence", "_workers", "lost", "rescued")

    def __init__(self, silence: float) -> None:
        self._silence = silence
        self.rescued: dict[tuple[str, str], int] = {}
        """Streams that went on elsewhere, by the name of whom they had been with, and why."""
        self._workers: dict[str, Worker] = {}
        self.lost: dict[str, int] = {}
        """Those that did not, by what kept them from it."""

    def mark(self, call: Call) -> None:
        """Ask for the ids of the answer's tokens, where they are of use."""
        if not call.stream:
            return
        body = call.body
        if body is not None and not _obstacle(call):
            dialect = call.route.dialect
            assert dialect is not None
            call.trail = Trail(dialect.mark, keeps_text=bool(body.get("stop")), patience=self._silence)

    def committed(self, call: Call, attempt: Attempt) -> None:
        """A stream goes on."""
        if attempt.why == "rescue":
            lost = [other for other in call.tries if other.first_content_ns and other is not attempt][-1]
            name = lost.worker.name
            kind = (name, "" if lost.fault is None else lost.fault.kind)
            self.rescued[kind] = self.rescued.get(kind, 0) + 1
            self._workers[name] = lost.worker

    def completed(self, call: Call, outcome: Outcome) -> None:
        """Count the streams that broke off nevertheless, by what kept them from going on."""
        if call.stream and outcome.ending is Ending.UPSTREAM_LOST:
            why, text = _hindrance(call)
            self.lost[why] = self.lost.get(why, 0) + 1
            log.warning("the stream of request %s did not go on elsewhere: %s", call.id, text)

    def forget_the_gone(self) -> None:
        """Let go of workers that are in no pool any more: what is found by name or by lease comes and goes."""
        for name in [name for name, worker in self._workers.items() if not worker.pools]:
            del self._workers[name]
            self.rescued = {kind: count for kind, count in self.rescued.items() if kind[0] != name}


def _hindrance(call: Call) -> tuple[str, str]:
    """What kept a stream from going on: as a label, and in words."""
    trail = call.trail
    if trail is None:
        return "request", f"it cannot be continued exactly ({_obstacle(call) or 'its form is not known'})"
    if not trail.sample:
        return "no_ids", "its engine gave no ids of its tokens"
    if trail.obstacle:
        return "answer", f"it cannot be continued exactly ({trail.obstacle})"
    failed = [
        f"{attempt.worker.name}: {attempt.fault.message}"
        for attempt in call.tries
        if attempt.why == "rescue" and attempt.fault is not None
    ]
    return "worker", "no other worker could" + (f" ({'; '.join(failed)})" if failed else "")


def _obstacle(call: Call) -> str:
    if call.body is None:
        return "its body is no JSON"
    try:
        return obstacle(call.body, call.route.name)
    except Reject:
        return "a value that JSON cannot have"
