"""Which answers an operator wants thrown away, and throwing them away without holding up the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from tailrace.proxy.control import Refused

if TYPE_CHECKING:
    from tailrace.plugins.semantic_cache.memory import Entry, Memory
    from tailrace.proxy.chain import Chain

_FIELDS: Final = ("tenant", "model", "domain")
_SLICE: Final = 100
"""Entries that are looked at in one turn of the loop."""


def chosen(chain: Chain, fields: dict[str, Any]) -> dict[str, str]:
    """What the admin port was sent, the model as workers name it; raises Refused for anything else."""
    given = {name: value for name, value in fields.items() if value is not None}
    if unknown := given.keys() - set(_FIELDS):
        raise Refused(f"there is no '{min(unknown)[:64]}' here: {', '.join(_FIELDS)}")
    if not all(isinstance(value, str) for value in given.values()):
        raise Refused("each of them is a text")
    entry = chain.models.entries.get(given.get("model", ""))
    if entry is not None and entry.served:
        given["model"] = entry.served
    return given


async def purge(memory: Memory, given: Mapping[str, str]) -> int:
    """Forget all entries for which everything given holds; how many there were."""
    purged = 0
    for count, entry in enumerate(memory.entries()):
        if all(_is(entry, name, value) for name, value in given.items()):
            memory.drop(entry)
            purged += 1
        if count % _SLICE == _SLICE - 1:
            await asyncio.sleep(0)
    return purged


def _is(entry: Entry, name: str, value: str) -> bool:
    tenant, domain, _ = entry.scope
    return value == {"tenant": tenant, "model": entry.answer.model, "domain": domain}[name]
