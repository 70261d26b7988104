"""A chain whose plugins are timed: for the few calls that are looked at closely, so that all others pay nothing for it.

It is the same chain, with every phase that may take a while behind a clock.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from tailrace.proxy.reply import Reply
from tailrace.proxy.trace.pieces import LONG_NS

if TYPE_CHECKING:
    from tailrace.proxy.call import Call
    from tailrace.proxy.chain import Chain
    from tailrace.proxy.pipeline import Pipeline

_PLAIN = ("on_chosen", "on_commit", "on_answer", "on_stream")


def timed(chain: Chain) -> Chain:
    """The chain with clocks; calls that hold either are counted together."""
    return replace(chain, pipeline=_with_clocks(chain.pipeline))


def _with_clocks(pipeline: Pipeline) -> Pipeline:
    owners = dict(pipeline.owners)

    def behind(method: Any, phase: str) -> Any:
        link = pipeline.owners[method]
        clocked = _clocked(method, link.name, phase)
        owners[clocked] = link
        return clocked

    changed: dict[str, Any] = {
        phase: tuple(behind(method, phase) for method in getattr(pipeline, phase)) for phase in _PLAIN
    }
    changed["score_workers"] = tuple(
        (weight, behind(score, "score_workers")) for weight, score in pipeline.score_workers
    )
    changed["on_request"] = tuple(
        replace(each, on_request=_clocked_request(each.on_request, each.link.name)) for each in pipeline.on_request
    )
    return replace(pipeline, owners=owners, **changed)


def _clocked(method: Callable[..., Any], name: str, phase: str) -> Callable[..., Any]:
    def clocked(call: Call, *rest: Any) -> Any:
        began = monotonic_ns()
        try:
            return method(call, *rest)
        finally:
            _note(call, name, phase, began)

    return clocked


def _clocked_request(on_request: Callable[[Call], Any], name: str) -> Callable[[Call], Any]:
    def clocked(call: Call) -> Any:
        began = monotonic_ns()
        try:
            given = on_request(call)
        except BaseException:
            _note(call, name, "on_request", began)
            raise
        if isinstance(given, Awaitable):
            return _awaited(given, call, name, began)
        _note(call, name, "on_request", began)
        return given

    return clocked


async def _awaited(given: Awaitable[Reply | None], call: Call, name: str, began: int) -> Reply | None:
    try:
        return await given
    finally:
        _note(call, name, "on_request", began)


def _note(call: Call, name: str, phase: str, began: int) -> None:
    took = monotonic_ns() - began
    trace = call.trace
    if took >= LONG_NS and trace is not None and trace.phases is not None:
        trace.phases.append((name, phase, began, took))
