"""Finds plugins, commands and roles by name: the core imports none of them."""

from __future__ import annotations

import difflib
import importlib
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from tailrace.proxy.plugin import AnyPlugin, Plugin


class UnknownName(ValueError):  # noqa: N818 - it is reported as a fault of the configuration
    """No such plugin, command or role; the text names what there is."""


@cache
def _found(group: str) -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=f"tailrace.{group}")}


def names(group: str) -> list[str]:
    """Everything installed under `plugins`, `commands` or `roles`."""
    return sorted(_found(group))


def load(group: str, name: str) -> Any:
    """The object that a name of a group stands for; raises UnknownName."""
    point = _found(group).get(name)
    if point is None:
        near = difflib.get_close_matches(name, _found(group), 1)
        hint = f"did you mean '{near[0]}'?" if near else f"known: {', '.join(names(group))}"
        raise UnknownName(f"there is no {group.removesuffix('s')} '{name}'; {hint}")
    try:
        return point.load()
    except (ImportError, AttributeError) as error:
        raise UnknownName(f"{group.removesuffix('s')} '{name}' is installed but cannot be loaded: {error}") from error


def plugin(name: str) -> type[AnyPlugin]:
    """The plugin class for a short name, or for `package.module:Class`; raises UnknownName."""
    if ":" not in name:
        found = load("plugins", name)
    else:
        module, _, attribute = name.partition(":")
        try:
            found = getattr(importlib.import_module(module), attribute)
        except ImportError as error:
            raise UnknownName(f"plugin '{name}' cannot be imported: {error}") from error
        except AttributeError:
            raise UnknownName(f"module '{module}' has no '{attribute}'") from None
    if not (isinstance(found, type) and issubclass(found, Plugin)):
        raise UnknownName(f"'{name}' is no plugin: it must be a class derived from tailrace.proxy.plugin.Plugin")
    return found
