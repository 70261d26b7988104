"""What a call did when: the pieces of time that a waterfall shows and spans are made of.

The times of attempts are stamps. Within the attempt that was shown, network, queue and prefill are laid one behind the
other: how long they took is known, where the way back lies among them is not.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tailrace.proxy.fault import PREEMPTED
from tailrace.proxy.trace.told import Record, Tried

CALL = "call"
LONG_NS = 100_000
"""Phases of plugins that took less are not worth a piece."""
PAUSE_NS = 1_000_000
"""Nor are pauses."""
REQUEUED = "requeue"


class Piece(NamedTuple):
    """Monotonic nanoseconds; `parent` is the place of another piece in the list, -1 for the first, which is the call.

    `number` is an attempt's, 0 for what is none.
    """

    name: str
    began: int
    ended: int
    parent: int
    number: int = 0
    note: str = ""


def pieces_of(record: Record) -> list[Piece]:
    """All of them, parents before their children."""
    pieces = [Piece(CALL, record.started, record.finished, -1)]
    arrived = record.received or record.started
    if arrived > record.started:
        pieces.append(Piece("client_edge", record.started, arrived, 0))
    tries = record.tries
    left = tries[0].began if tries else record.finished
    if left > arrived:
        waited = min(record.waited - record.requeued, left - arrived)
        if tries or not record.source:
            pieces.append(Piece("gateway", arrived, left, 0, note=f"{_ms(waited)} ms of it in line" if waited else ""))
        else:
            # What another call gets, or what is given at a set rate, may take as long as an engine does.
            note = f"by {record.source}" + (f", {_ms(waited)} ms of it waited for" if waited else "")
            pieces.append(Piece("answer", arrived, left, 0, note=note))
    gateway = len(pieces) - 1
    for plugin, phase, began, took in record.trace.phases if record.trace is not None else ():
        parent = gateway if began < left and gateway else 0
        pieces.append(Piece(f"{plugin}.{phase}", began, began + took, parent))
    shown = shown_of(record)
    quiet = left
    for tried in tries:
        if tried.began - quiet >= PAUSE_NS:
            note = "in line once more" if tried.why == REQUEUED else ""
            pieces.append(Piece("pause", quiet, tried.began, 0, note=note))
        quiet = max(quiet, tried.ended or record.finished)
        at = len(pieces)
        ended = tried.ended or record.finished
        whole = tried is shown and tried.first and not tried.streaming and not tried.ended
        pieces.append(Piece(f"attempt {tried.number}", tried.began, tried.first if whole else ended, 0, tried.number))
        pieces.extend(_within(record, tried, at, ended, refined=tried is shown))
        if whole and tried.first < record.finished:
            pieces.append(Piece("answer", tried.first, record.finished, 0))
    if record.finished - quiet >= PAUSE_NS and tries:
        pieces.append(Piece("pause", quiet, record.finished, 0))
    return pieces


def shown_of(record: Record) -> Tried | None:
    """The attempt whose content the client saw first, or that it waited for last; None where none was made."""
    with_content = [tried for tried in record.tries if tried.first]
    for tried in with_content:
        if tried.first == record.first:
            return tried
    if with_content:
        return with_content[0]
    return record.tries[-1] if record.tries else None


def _within(record: Record, tried: Tried, at: int, ended: int, *, refined: bool) -> Iterator[Piece]:
    """What one attempt consisted of."""
    if not tried.sent:
        yield Piece("connect", tried.began, ended, at, note="no connection")
        return
    if tried.sent > tried.began:
        yield Piece("connect", tried.began, tried.sent, at)
    until = tried.first or ended
    moment = tried.sent
    if refined and record.stages is not None:
        stages = record.stages
        # One that gave its place up waited after its end, which is counted there, too.
        recalled = tried.flaw is not None and tried.flaw.kind == PREEMPTED.kind
        parts = (
            ("network", stages.network - (tried.sent - tried.began)),
            ("queue", 0 if recalled else stages.queue - record.waited),
            ("prefill", stages.prefill),
        )
        for name, took in parts:
            took = min(took, until - moment)
            if took > 0 and name != "prefill":
                yield Piece(name, moment, moment + took, at)
                moment += took
            elif took > 0:
                behind = until - moment if tried.streaming else took
                yield Piece(name, moment, moment + behind, at)
                moment += behind
        if not tried.streaming and stages.decode > 0 and moment < until:
            yield Piece("decode", moment, until, at)
    elif until > moment:
        yield Piece("prefill" if tried.first else "waited", moment, until, at)
    if tried.first and tried.streaming and ended > tried.first:
        yield Piece("decode", tried.first, ended, at)


def _ms(ns: int) -> str:
    return f"{ns / 1e6:.1f}"
