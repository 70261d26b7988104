"""What an operator may want to know of a chain: classes that nobody gives, an order or a company that plugins lack."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from tailrace.proxy.blame import own_failure
from tailrace.proxy.discovery.carrying import counted
from tailrace.proxy.entry import PluginEntry
from tailrace.proxy.plugin import Plugin
from tailrace.proxy.service_class import ServiceClass
from tailrace.proxy.settings import PoolSettings
from tailrace.proxy.unreached import unreached

_NEED_OTHERS: Final = {"retry": "can only ask it again", "hedge": "does nothing", "rescue": "does nothing"}
_FIRST_OF_ALL: Final = "cors"


def order_notes(plugins: Sequence[PluginEntry], pools: Mapping[str, PoolSettings]) -> Iterator[str]:
    """One line each; `pools` are those that models are served by."""
    names = [entry.name for entry in plugins]
    for number, entry in enumerate(plugins):
        if note := _classes(plugins, number):
            yield f"plugins[{number}]: {note}"
        if entry.name == "deadline":
            yield from (f"plugins[{number}]: {note}" for note in unreached("budgets", entry.config.budgets))
        if entry.name == "admission" and "deadline" in names[number:] and "deadline" not in names[:number]:
            yield f"plugins[{number}]: put `deadline` before it, or calls wait for their places without a budget"
        if entry.name == "timing" and (later := [f"`{each.name}`" for each in plugins[:number] if _answers(each)]):
            they = f"{' and '.join(later)} {'does' if len(later) == 1 else 'do'}"
            yield f"plugins[{number}]: put `timing` first, or it does not see what {they} to answers"
        if entry.name == "fallback" and "retry" in names[:number] and "retry" not in names[number:]:
            yield f"plugins[{number}]: put `fallback` before `retry`, or it is asked only where `retry` names nobody"
        if entry.name == "guard" and "rescue" in names[:number]:
            yield f"plugins[{number}]: put `guard` before `rescue`, which judges a request by what the engine gets"
    if "rescue" in names and "retry" not in names:
        place = names.index("rescue")
        yield f"plugins[{place}]: add `retry`: `rescue` is for streams, and only once their first content is there"
    lone = [f"`{name}` {what}" for name, what in _NEED_OTHERS.items() if name in names]
    counts = {name: counted(pool.workers) for name, pool in pools.items()}
    if lone and all(count == 1 for count in counts.values()):
        yield f"no pool has a second worker: {', '.join(lone)}; add workers"
    yield from _given_up(names, [name for name, count in counts.items() if count is None or count > 1])


def _given_up(names: Sequence[str], several: Sequence[str]) -> Iterator[str]:
    """What calls of a worker that dies lack, where others could go on with them."""
    if several and "retry" not in names and "rescue" not in names:
        where = ", ".join(f"'{name}'" for name in several)
        pools = f"pool {where} has" if len(several) == 1 else f"pools {where} have"
        yield f"{pools} more than one worker: add `retry` and `rescue`, or what runs at one that dies fails with it"
    elif several and "rescue" not in names:
        place = names.index("retry")
        yield f"plugins[{place}]: add `rescue`: streams whose content has begun break off where their worker dies"


def _classes(plugins: Sequence[PluginEntry], number: int) -> str:
    """What is to be said of the classes that an entry goes by."""
    entry = plugins[number]
    named = () if entry.terms.when is None else entry.terms.when.service_class
    try:
        named = (*named, *getattr(entry.config, "service_classes", ()))
    except Exception as error:
        return f"plugin '{entry.name}' itself failed at its service classes: {own_failure(error)}"
    before, behind = _given(plugins[:number]), _given(plugins[number + 1 :])
    lacking = list(dict.fromkeys(name for name in named if before is not None and name not in before))
    if not lacking:
        return ""
    said = f"{'the class' if len(lacking) == 1 else 'the classes'} {', '.join(map(repr, lacking))}"
    if before:
        return f"no plugin before it gives {said}; there {'is' if len(before) == 1 else 'are'} {', '.join(before)}"
    if behind is None or behind:
        return f"put `service_class` before it, or no call has {said} there"
    return f"no plugin before it gives {said}: put `service_class` there"


def _given(plugins: Sequence[PluginEntry]) -> dict[str, None] | None:
    """The classes that plugins give; None where one of them does not say which."""
    given: dict[str, None] = {}
    for entry in plugins:
        if ServiceClass in entry.plugin.provides:
            names = getattr(entry.config, "names", None)
            if not isinstance(names, tuple):
                return None
            given.update(dict.fromkeys(names))
    return given


def _answers(entry: PluginEntry) -> bool:
    """Whether a plugin works on answers; what has to be the very first may."""
    plugin = entry.plugin
    touches = plugin.on_answer is not Plugin.on_answer or plugin.on_stream is not Plugin.on_stream
    return touches and entry.name not in (_FIRST_OF_ALL, "timing")
