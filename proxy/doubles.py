"""Plugins of which a call must not meet two: each would give the call a place, a budget, an identity or an attempt."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from tailrace.proxy.config import At
from tailrace.proxy.entry import PluginEntry, When

_BEFORE_A_WORKER = ("auth", "service_class", "deadline", "billing", "quota", "cache", "admission", "timing", "trace")
_AT_WORKERS = ("breaker", "hedge", "retry", "rescue")
_IN_PLACE_OF_WORKERS = ("semantic_cache",)
ALONE: Final = frozenset((*_BEFORE_A_WORKER, *_AT_WORKERS, *_IN_PLACE_OF_WORKERS))


def doubles(plugins: Sequence[PluginEntry]) -> Iterator[At]:
    """Each entry of a plugin that calls have met before, as one fault at its place."""
    for number, entry in enumerate(plugins):
        if entry.name not in ALONE:
            continue
        for place, other in enumerate(plugins[:number]):
            if other.name == entry.name and _share_calls(other.terms.when, entry.terms.when):
                text = f"`{entry.name}` stands at plugins[{place}], too: give both a `when`, so that no call meets both"
                yield At(f"{text}, or remove one", "plugins", number)
                break


def _share_calls(one: When | None, other: When | None) -> bool:
    """Whether a call may meet both conditions, as far as conditions tell."""
    if one is None or other is None:
        return True
    if one.stream is not None and other.stream is not None and one.stream != other.stream:
        return False
    pairs = ((one.model, other.model), (one.route, other.route), (one.service_class, other.service_class))
    return all(not ours or not theirs or set(ours) & set(theirs) for ours, theirs in pairs)
