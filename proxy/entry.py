"""One entry of the `plugins:` list: which plugin, its configuration, and when and how it runs."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tailrace.proxy import registry
from tailrace.proxy.blame import own_failure
from tailrace.proxy.config import Above, At, AtLeast, ConfigError, Flaws, Node, setting
from tailrace.proxy.config.flaws import name as quoted
from tailrace.proxy.config.setting import is_required
from tailrace.proxy.config.shape import BAD, INTERPOLATED, Bad, part_of
from tailrace.proxy.config.shapes import record_of
from tailrace.proxy.pipeline import ChainError, Link
from tailrace.proxy.plugin import AnyPlugin, Key, Plugin
from tailrace.proxy.routes import NAMES
from tailrace.proxy.service_class import ServiceClass

if TYPE_CHECKING:
    from tailrace.proxy.call import Call

DEFAULT_BUDGET_MS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class When:
    """Conditions on a call; all that are given must hold. Judged once, when the plugin is first reached."""

    model: tuple[str, ...] = setting(default=(), help="model names, as clients write them")
    route: tuple[str, ...] = setting(default=(), help="route names: chat, completions, messages, …")
    service_class: tuple[str, ...] = setting(default=(), key="class", help="classes of service, by `service_class`")
    stream: bool | None = setting(default=None, help="only streaming calls, or only others")

    def check(self) -> Iterable[At]:
        """Routes that no call can have."""
        for number, route in enumerate(self.route):
            if route not in NAMES:
                yield At(f"there is no route '{route}'; routes: {', '.join(NAMES)}", "route", number)

    def holds(self, call: Call) -> bool:
        """Whether a call meets the conditions."""
        if self.route and call.route.name not in self.route:
            return False
        if self.model and call.model not in self.model:
            return False
        if self.service_class:
            fact = call.fact(ServiceClass)
            if fact is None or fact.name not in self.service_class:
                return False
        return self.stream is None or self.stream == call.stream


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What an entry says beside the plugin's own configuration."""

    when: When | None = setting(default=None, help="only for these calls")
    budget_ms: Annotated[float, Above(0)] | None = setting(
        default=None, help=f"how long it may wait, in ms; {DEFAULT_BUDGET_MS:g} for plugins that wait on a network"
    )
    on_error: Literal["open", "closed"] = setting(
        default="closed", help="whether its failure lets the call pass or refuses it"
    )
    weight: Annotated[float, AtLeast(0)] = setting(default=1.0, help="the weight of its worker scores")


_TERMS = frozenset(field.name for field in dataclasses.fields(Terms))


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginEntry:
    """`- name: {config}` with `when`, `budget_ms`, `on_error` and `weight` beside it."""

    name: str
    plugin: type[AnyPlugin]
    config: Any
    terms: Terms

    @classmethod
    def from_node(cls, node: Node, flaws: Flaws) -> PluginEntry | None:
        """Read an entry; a bare name stands for a plugin with its defaults."""
        if node.kind == "scalar":
            return cls._build(node, node.as_text(), None, Terms(), flaws)
        terms = _terms_of(node, flaws)
        named = [(key, value) for key, value in node.items() if key.text not in _TERMS]
        plugins = [(key, value) for key, value in named if _is_plugin(key.text)] if len(named) > 1 else named
        if len(plugins) != 1:
            found = ", ".join(key.text for key, _ in named) or "none"
            flaws.add(node, f"a plugin entry names one plugin, got {found}; write `- name: {{…}}`")
            return None
        key, value = plugins[0]
        entry = cls._build(key, key.text, value, terms, flaws)
        options = () if entry is None else record_of(entry.plugin.Config).fields
        for other, _ in named:
            if other is not key:
                flaws.add(other, _unknown(other.text, key.text, options))
        weight = node.pair("weight")
        if weight is not None and entry is not None and not _scores(entry.plugin):
            flaws.add(weight[0], f"plugin '{key.text}' scores no workers: there is nothing that a weight could weigh")
        return entry

    @classmethod
    def _build(cls, node: Node, name: str, value: Node | None, terms: Terms, flaws: Flaws) -> PluginEntry | None:
        try:
            plugin = registry.plugin(name, node.origin.folder)
        except registry.UnknownName as error:
            flaws.add(node, str(error))
            return None
        try:
            # Kept with its faults, which are noted: the chain around it can be looked at all the same.
            config = cls._config(plugin.Config, node, name, value, flaws)
        except ConfigError:
            raise
        except Exception as error:
            told = f"plugin '{name}' itself failed while its options were read: {own_failure(error)}"
            flaws.add(node, node.origin.covered(told))
            return None
        return cls(name=name, plugin=plugin, config=part_of(config), terms=terms)

    @staticmethod
    def _config(options: type, node: Node, name: str, value: Node | None, flaws: Flaws) -> Any:
        if value is not None and not value.is_null:
            return record_of(options).decode(value, flaws)
        missing = [field.name for field in dataclasses.fields(options) if is_required(field)]
        if missing:
            flaws.add(node, f"plugin '{name}' needs {', '.join(missing)}")
            return BAD
        return record_of(options).decode_nothing(node, flaws)

    def to_plain(self) -> dict[str, object]:
        """The entry as YAML would have it, defaults filled in."""
        terms = record_of(Terms).plain(self.terms)
        given = {
            field.name: terms[field.name]
            for field in dataclasses.fields(Terms)
            if getattr(self.terms, field.name) != field.default
        }
        return {self.name: record_of(type(self.config)).plain(self.config), **given}

    @classmethod
    def node_schema(cls, nested: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        """The schema of an entry: an installed plugin with its configuration, or any class by its path."""
        terms = nested(Terms)["$ref"]
        beside: dict[str, Any] = {name: {"$ref": f"{terms}/properties/{name}"} for name in sorted(_TERMS)}
        entries: list[dict[str, Any]] = []
        bare: list[str] = []
        for name in registry.names("plugins"):
            plugin = registry.plugin(name)
            options = plugin.Config
            config = nested(options)
            if not any(map(is_required, dataclasses.fields(options))):
                bare.append(name)
                config = {"anyOf": [config, {"type": "null"}]}
            properties = {name: config, **beside}
            if not _scores(plugin):
                del properties["weight"]
            entries.append(
                {"type": "object", "required": [name], "properties": properties, "additionalProperties": False}
            )
        by_path = {
            "type": "object",
            "properties": beside,
            "patternProperties": {":": {}},
            "additionalProperties": False,
            "not": {"propertyNames": {"enum": sorted(_TERMS)}},
        }
        names = [{"enum": bare}, {"type": "string", "pattern": f":|{INTERPOLATED}"}]
        return {"anyOf": [*names, *entries, by_path]}

    def link(self) -> Link:
        """The entry as a link of the chain."""
        terms = self.terms
        budget = terms.budget_ms
        if budget is None and self.plugin.waits:
            budget = DEFAULT_BUDGET_MS
        return Link(
            self.plugin(self.config),
            self.name,
            when=None if terms.when is None else _judged_once(terms.when),
            budget=None if budget is None else budget / 1000,
            open_on_error=terms.on_error == "open",
            weight=terms.weight,
        )


def chain_links(entries: Sequence[PluginEntry]) -> list[Link]:
    """The links of a list of entries; raises ChainError for a plugin that cannot be made."""
    links = []
    for number, entry in enumerate(entries):
        try:
            links.append(entry.link())
        except (OSError, ValueError) as error:
            raise ChainError(f"plugin '{entry.name}' cannot be made: {error}", number) from error
        except Exception as error:
            raise ChainError(
                f"plugin '{entry.name}' itself failed when it was made: {own_failure(error)}", number
            ) from error
    return links


def _judged_once(when: When) -> Callable[[Call], bool]:
    key: Key[bool] = Key("when")

    def holds(call: Call) -> bool:
        if key not in call:
            call[key] = when.holds(call)
        return call[key]

    return holds


def _terms_of(node: Node, flaws: Flaws) -> Terms:
    """What stands beside the plugin; what is faulty there is noted and left at its default."""
    fields = record_of(Terms).fields
    values = {key.text: fields[key.text][1].decode(value, flaws) for key, value in node.items() if key.text in _TERMS}
    return Terms(**{name: value for name, value in values.items() if not isinstance(value, Bad)})


def _scores(plugin: type[AnyPlugin]) -> bool:
    return plugin.score_workers is not Plugin.score_workers


def _is_plugin(name: str) -> bool:
    return ":" in name or name in registry.names("plugins")


def _unknown(key: str, plugin: str, options: Container[str]) -> str:
    if key in options:
        return f"unknown key {quoted(key)} beside a plugin: indent it further to make it an option of {quoted(plugin)}"
    near = difflib.get_close_matches(key[:80], _TERMS, 1)
    hint = f"did you mean {quoted(near[0])}?" if near else f"known beside a plugin: {', '.join(sorted(_TERMS))}"
    return f"unknown key {quoted(key)}, {hint}"
