"""Finds plugins, commands and roles by name: the core imports none of them."""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import sys
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from tailrace.proxy.blame import own_failure
from tailrace.proxy.plugin import AnyPlugin, Plugin

FEW = 4
"""So many names are all told, even where it is clear which one was meant."""


class UnknownName(ValueError):  # noqa: N818 - it is reported as a fault of the configuration
    """No such plugin, command or role; the text names what there is."""


@cache
def _found(group: str) -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=f"tailrace.{group}")}


def names(group: str) -> list[str]:
    """Everything installed under `plugins`, `commands` or `roles`."""
    return sorted(_found(group))


def nearest(group: str, name: str) -> str | None:
    """The name of a group that is probably meant."""
    near = difflib.get_close_matches(name, _found(group), 1)
    return near[0] if near else None


def load(group: str, name: str) -> Any:
    """The object that a name of a group stands for; raises UnknownName."""
    point = _found(group).get(name)
    if point is None:
        found = nearest(group, name)
        known = f"known: {', '.join(names(group))}"
        hint = known if found is None else f"did you mean '{found}'?"
        if found is not None and len(_found(group)) <= FEW:
            hint += f" ({known})"
        raise UnknownName(f"there is no {group.removesuffix('s')} '{name}'; {hint}")
    try:
        return point.load()
    except (Exception, SystemExit) as error:
        kind = group.removesuffix("s")
        raise UnknownName(f"{kind} '{name}' is installed but cannot be loaded: {own_failure(error)}") from error


def plugin(name: str, folder: Path | None = None) -> type[AnyPlugin]:
    """The plugin class for a short name, or for `package.module:Class`; raises UnknownName.

    Modules are looked for where Python looks, and then in `folder`, that of the configuration file.
    """
    if ":" not in name:
        found = load("plugins", name)
    else:
        module, _, attribute = name.partition(":")
        found = getattr(_module(module, folder), attribute, None)
        if found is None:
            raise UnknownName(f"module '{module}' has no '{attribute}'")
    if not (isinstance(found, type) and issubclass(found, Plugin)):
        raise UnknownName(f"'{name}' is no plugin: it must be a class derived from tailrace.proxy.plugin.Plugin")
    if not dataclasses.is_dataclass(getattr(found, "Config", None)):
        raise UnknownName(
            f"plugin '{name}' lacks its `Config`, the frozen dataclass of its options; an empty one will do"
        )
    return found


def _module(name: str, folder: Path | None) -> ModuleType:
    place = "" if folder is None else str(folder.resolve())
    if place and place not in sys.path:
        # Last, so that a file beside the configuration hides nothing that is installed.
        sys.path.append(place)
    # The file may be newer than what Python knows of its folder.
    importlib.invalidate_caches()
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing is None or not f"{name}.".startswith(f"{missing}."):
            raise UnknownName(f"module '{name}' cannot be imported: {own_failure(error)}") from error
        looked = ", ".join(dict.fromkeys(filter(None, (place, *sys.path))))
        raise UnknownName(f"there is no module '{missing}'; looked in {looked}") from None
