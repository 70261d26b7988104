"""Names in the configurations of plugins that stand for something else in the file: models and pools."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING

from tailrace.proxy.blame import own_failure
from tailrace.proxy.config import At
from tailrace.proxy.pipeline import ChainError

if TYPE_CHECKING:
    from tailrace.proxy.entry import PluginEntry


def unknown_names(plugins: Iterable[PluginEntry], models: Collection[str], pools: Collection[str]) -> Iterator[At]:
    """What plugins find unknown in their configurations (`unknown_names`); raises ChainError where one fails at it.

    `pools` are all that calls can go to, with those of models that list their workers themselves.
    """
    failure: ChainError | None = None
    for number, entry in enumerate(plugins):
        ask = getattr(entry.config, "unknown_names", None)
        if ask is None:
            continue
        try:
            found: tuple[At, ...] = tuple(ask(models, pools))
        except Exception as error:
            told = f"plugin '{entry.name}' itself failed at its unknown names: {own_failure(error)}"
            failure = failure or ChainError(told, number)
            continue
        for fault in found:
            yield At(fault.text, "plugins", number, entry.name, *fault.path)
    if failure is not None:
        raise failure


def no_model(name: str) -> str:
    """What is told of a model that is named where adapters have to be written down, too."""
    return f"there is no model '{name}'; an adapter has to stand under `models` to be named here"
