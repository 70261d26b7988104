"""A reference that leads nowhere is one fault at its line, under whichever setting of a role or a plugin it stands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest
from tailrace.proxy import registry
from tailrace.proxy.config import ConfigError
from tailrace.proxy.config.compound import Bounded, Either, ListOf, MapOf
from tailrace.proxy.config.record import Record
from tailrace.proxy.config.render import written
from tailrace.proxy.config.setting import is_required
from tailrace.proxy.config.shape import Shape
from tailrace.proxy.config.shapes import record_of
from tailrace.proxy.configuration import understand
from tailrace.proxy.entry import Terms

NOWHERE = "reference to nothing"
BASES: dict[str, dict[str, Any]] = {
    "gateway": {"listen": "127.0.0.1:8080", "models": {"m": {"workers": ["http://127.0.0.1:1"]}}},
    "worker": {"role": "worker", "listen": "127.0.0.1:8000", "engine": {"sim": {}}},
}
# What has to stand beside a setting, by the setting's last name, for a file to be good but for it.
REQUIRED = {
    "address": "127.0.0.1:0",
    "cert": "c",
    "key": "k",
    "path": "/x",
    "pool": "p",
    "fail": "error",
    "model": "m",
    "name": "a",
    "url": "http://a-name:1",
    "group": "g",
}
REQUIRED_LISTS: dict[str, list[Any]] = {
    "workers": ["http://127.0.0.1:2"],
    "origins": ["*"],
    "gateways": ["http://a-name:1"],
    "names": ["a"],
    "to": [{"model": "m"}],
    "domains": [{"name": "a"}],
}
Step = str | int


def records(shape: Shape) -> Iterator[tuple[Record, tuple[Step, ...]]]:
    """The dataclasses that a value may hold, and where in it."""
    if isinstance(shape, Record):
        if not hasattr(shape.cls, "from_node"):
            yield shape, ()
    elif isinstance(shape, Bounded):
        yield from records(shape.inner)
    elif isinstance(shape, Either):
        for option in shape.options:
            yield from records(option)
    elif isinstance(shape, ListOf | MapOf):
        step: Step = 0 if isinstance(shape, ListOf) else "name"
        for record, path in records(shape.element if isinstance(shape, ListOf) else shape.value):
            yield record, (step, *path)


def settings(record: Record, above: tuple[Step, ...] = ()) -> Iterator[tuple[Step, ...]]:
    """The path of every setting, of every one in a dataclass below it, and of one entry of each list and mapping."""
    for key, (_, shape) in record.fields.items():
        path = (*above, key)
        yield path
        inner = shape.inner if isinstance(shape, Bounded) else shape
        if isinstance(inner, ListOf | MapOf):
            yield (*path, 0 if isinstance(inner, ListOf) else "name")
        for nested, steps in records(shape):
            yield from settings(nested, (*path, *steps))


def several(shape: Shape) -> ListOf | MapOf | None:
    """The list or mapping that a setting may be."""
    if isinstance(shape, Bounded):
        return several(shape.inner)
    if isinstance(shape, Either):
        return next(filter(None, map(several, shape.options)), None)
    return shape if isinstance(shape, ListOf | MapOf) else None


def put(plain: Any, record: Record, path: tuple[Step, ...]) -> None:
    """Write the reference at a path, and what the dataclasses on the way need beside it."""
    shape: Shape = record
    for number, step in enumerate(path):
        inside = [found for found, steps in records(shape) if steps == ()]
        if inside and isinstance(step, str) and step in inside[0].fields:
            for key, (field, _) in inside[0].fields.items():
                if is_required(field) and key != step and key not in plain:
                    plain[key] = REQUIRED.get(key) or REQUIRED_LISTS.get(key) or "a text of some length"
            shape = inside[0].fields[step][1]
        else:
            inner = several(shape)
            assert inner is not None
            shape = inner.element if isinstance(inner, ListOf) else inner.value
        if number == len(path) - 1:
            value: Any = NOWHERE
        else:
            value = [None] if path[number + 1] == 0 else {}
        if isinstance(step, int) or not isinstance(plain.get(step), dict) or value == NOWHERE:
            plain[step] = value
        plain = plain[step]


def shown(path: tuple[Step, ...]) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")


def faults(plain: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.delenv("NOWHERE", raising=False)
    text = re.sub(f"'?{NOWHERE}'?", "${NOWHERE}", written(plain))
    with pytest.raises(ConfigError) as raised:
        understand(text, "t.yaml")
    line = next(number for number, line in enumerate(text.splitlines(), 1) if "${NOWHERE}" in line)
    return [str(flaw).removeprefix(f"t.yaml:{line}: ") for flaw in raised.value.flaws]


ROLE_SETTINGS = [
    (role, path) for role in BASES for path in settings(record_of(registry.load("roles", role).Settings))
]  # fmt: skip


@pytest.mark.parametrize(
    ("role", "path"), ROLE_SETTINGS, ids=[f"{role}: {shown(path)}" for role, path in ROLE_SETTINGS]
)
def test_a_setting_of_a_role(role: str, path: tuple[Step, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    plain = deepcopy(BASES[role])
    if path[0] == "listen" and len(path) > 1:
        del plain["listen"]
    if path[0] == "routes" or path[:1] == ("pools",):
        plain["pools"] = {"p": {"workers": ["http://127.0.0.1:2"]}}
    if path[0] == "engine" and len(path) > 1 and path[1] in ("vllm", "url", "pid", "pid_file", "api_key"):
        plain["engine"] = {} if path[1] in ("vllm", "url") else {"url": "http://127.0.0.1:1"}
    if path[0] == "models" and path[-1] not in ("pool", "workers"):
        plain["models"]["name"] = {"workers": ["http://127.0.0.1:2"]}
    if role == "worker" and path[0] in ("pools", "routes"):
        del plain["pools"]
        monkeypatch.setitem(REQUIRED, "pool", "engine")
    put(plain, record_of(registry.load("roles", role).Settings), path)
    if "registered" in path or path[0] == "register":
        plain["hop_key"] = "a key of sixteen characters"
    if path[-1] in ("weight", "region") and path[0] != "register":
        plain[path[0]]["name"]["workers"][0]["url"] = "http://127.0.0.1:3"
    assert faults(plain, monkeypatch) == [f"{shown(path)}: environment variable `NOWHERE` is not set"]


ISSUER = {"issuer": "https://id.example", "audience": ["a"], "jwks": "https://id.example/keys", "tenant": "t"}
PLUGIN_SETTINGS = [
    (name, path) for name in registry.names("plugins") for path in settings(record_of(registry.plugin(name).Config))
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "path"), PLUGIN_SETTINGS, ids=[f"{name}: {shown(path)}" for name, path in PLUGIN_SETTINGS]
)
def test_an_option_of_a_plugin(name: str, path: tuple[Step, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[str, Any] = {}
    if name == "service_class":
        path = tuple("chat" if step == "name" else step for step in path)  # its mapping has routes for keys
    put(options, record_of(registry.plugin(name).Config), path)
    if name == "auth" and path[:2] == ("jwt", 0) and len(path) > 2:
        whole = {key: value for key, value in ISSUER.items() if key != path[2]}
        if path[2] in ("jwks_file", "secret"):
            del whole["jwks"]
        options["jwt"][0] |= whole
    if name == "deadline" and path[:2] == ("budgets", 0) and len(path) > 2 and path[2] != "preset":
        options["budgets"][0]["preset"] = "chat"
    if name == "fallback" and path[:2] == ("to", 0) and len(path) > 2 and path[2] not in ("model", "pool"):
        options["to"][0].setdefault("model", "m")
    plain = BASES["gateway"] | {"plugins": [{name: options}]}
    if name == "admission":
        plain["pools"] = {"name": {"workers": ["http://127.0.0.1:2"]}}  # its mapping has pools for keys
    where = shown(("plugins", 0, name, *path))
    assert faults(plain, monkeypatch) == [f"{where}: environment variable `NOWHERE` is not set"]


@pytest.mark.parametrize("term", list(settings(record_of(Terms))), ids=shown)
def test_a_term_beside_a_plugin(term: tuple[Step, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    entry: dict[str, Any] = {"route": {}}
    put(entry, record_of(Terms), term)
    plain = BASES["gateway"] | {"plugins": [entry]}
    where = shown(("plugins", 0, *term))
    assert faults(plain, monkeypatch) == [f"{where}: environment variable `NOWHERE` is not set"]


@pytest.mark.parametrize("entry", [NOWHERE, {"route": NOWHERE}, {"guard": NOWHERE}], ids=str)
def test_a_whole_entry(entry: object, monkeypatch: pytest.MonkeyPatch) -> None:
    (fault,) = faults(BASES["gateway"] | {"plugins": [entry]}, monkeypatch)
    assert fault.endswith(": environment variable `NOWHERE` is not set")
