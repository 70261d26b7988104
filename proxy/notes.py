"""What an operator may want to know of a configuration although nothing is wrong with it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tailrace.proxy.blame import own_failure
from tailrace.proxy.build import all_pools
from tailrace.proxy.discovery.carrying import counted, shortage
from tailrace.proxy.entry import PluginEntry
from tailrace.proxy.order import order_notes
from tailrace.proxy.plugin import Plugin
from tailrace.proxy.settings import Gateway, Relay


def notes(settings: Relay) -> Iterator[str]:
    """One line each."""
    if not isinstance(settings, Gateway):
        return
    several = any(len(pool.workers) > 1 or pool.workers[0].source for pool in all_pools(settings).values())
    if several and all(entry.plugin.score_workers is Plugin.score_workers for entry in settings.plugins):
        yield "no plugin chooses workers (`route` does): each call goes to one at random"
    for name, pool in all_pools(settings).items():
        count = counted(pool.workers)
        if count is not None and (lack := shortage(count, pool.peak, pool.concurrency)):
            yield f"pool '{name}': {lack}"
    for number, entry in enumerate(settings.plugins):
        above = _like(settings.plugins[:number], entry)
        if above and entry.plugin.score_workers is not Plugin.score_workers:
            yield f"plugins[{number}]: `{entry.name}` scores the same calls as plugins[{above[0]}]: their scores add up"
        remark = getattr(entry.config, "remark", None)
        try:
            texts = () if remark is None else tuple(remark(settings.models.keys()))
        except Exception as error:
            texts = (f"plugin '{entry.name}' itself failed at its remark: {own_failure(error)}",)
        for text in texts:
            yield f"plugins[{number}]: {text}"
    asked = {model.pool or f"model:{name}" for name, model in settings.models.items()}
    pools = {name: pool for name, pool in all_pools(settings).items() if name in asked}
    yield from order_notes(settings.plugins, pools)


def _like(above: Sequence[PluginEntry], entry: PluginEntry) -> list[int]:
    """Where the same plugin stands further up for the same calls."""
    return [
        number
        for number, other in enumerate(above)
        if other.name == entry.name and other.terms.when in (None, entry.terms.when)
    ]
