"""A configuration file as the processes of a role use it: its text, its role and its decoded settings."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from tailrace.proxy import registry
from tailrace.proxy.blame import own_failure
from tailrace.proxy.config import ConfigError, Node, Source, decode_source, parse, text_of
from tailrace.proxy.config.flaws import Flaw
from tailrace.proxy.pipeline import ChainError
from tailrace.proxy.role import Role
from tailrace.proxy.settings import Relay

DEFAULT_ROLE = "gateway"


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """One state of a file. The text travels with it, so that every process decodes the same."""

    name: str
    text: str
    role_name: str
    role: Role
    settings: Relay
    files: tuple[Path, ...]


def load(path: str | Path, *, look: bool = True, elsewhere: bool = False) -> Configuration:
    """Read, decode and check a file; a ConfigError holds everything that is wrong."""
    return understand(text_of(path), str(path), look=look, elsewhere=elsewhere)


def understand(text: str, name: str, *, look: bool = False, elsewhere: bool = False) -> Configuration:
    """The same for text that stood in the file `name`; without `look`, what it names outside itself may be missing.

    What its values consist of may be missing only `elsewhere`, where it is checked and never served.
    """
    source = parse(text, name, look=look, elsewhere=elsewhere)
    node = source.root.get("role")
    if node is not None and node.broken:
        raise ConfigError(node.origin.flaws)
    role_name = node.as_text() if node is not None and node.kind == "scalar" else DEFAULT_ROLE
    try:
        role: Role = registry.load("roles", role_name)()
    except registry.UnknownName as error:
        told = Flaw(
            str(source.path), node.line if node is not None else 1, source.root.origin.covered(f"role: {error}")
        )
        raise ConfigError((told, *_faults_of_any_role(source, role_name))) from None
    try:
        settings = decode_source(role.Settings, source)
    except ChainError as error:
        _refuse(source, _entry(source, error.link), str(error))
    try:
        role.check(settings)
    except ChainError as error:
        _refuse(source, _entry(source, error.link), str(error))
    except Exception as error:
        _refuse(source, source.root.get("plugins"), f"the plugins cannot form a chain: {own_failure(error)}")
    return Configuration(name=name, text=text, role_name=role_name, role=role, settings=settings, files=source.files)


def _faults_of_any_role(source: Source, name: str) -> set[Flaw]:
    """What is wrong whichever role is meant, or in that which is probably meant."""
    near = registry.nearest("roles", name)
    found: list[set[Flaw]] = []
    for likely in registry.names("roles") if near is None else (near,):
        try:
            decode_source(registry.load("roles", likely)().Settings, source)
        except (registry.UnknownName, ChainError):
            continue
        except ConfigError as faults:
            found.append({flaw for flaw in faults.flaws if not flaw.text.startswith("role:")})
        else:
            return set()
    return set.intersection(*found) if found else set()


def restart_needed(old: Relay, new: Relay) -> list[str]:
    """What changed that only a restart puts into effect."""
    return [key for key in ("role", "listen", "processes", "admin", "state") if _of(old, key) != _of(new, key)]


def _of(settings: Relay, key: str) -> Any:
    return getattr(settings, key, None)


def _entry(source: Source, number: int | None) -> Node | None:
    plugins = source.root.get("plugins")
    return plugins if plugins is None or number is None else plugins.elements()[number]


def _refuse(source: Source, node: Node | None, text: str) -> NoReturn:
    raise ConfigError((Flaw(str(source.path), node.line if node is not None else 1, source.root.origin.covered(text)),))
