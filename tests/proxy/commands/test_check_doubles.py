"""A chain that has a plugin twice of which a call must meet one: refused where it is checked, started or reloaded."""

from __future__ import annotations

import pytest
from tailrace.proxy import registry
from tailrace.proxy.config import ConfigError
from tailrace.proxy.configuration import understand
from tailrace.proxy.doubles import ALONE

HEAD = "listen: 127.0.0.1:0\nmodels: {m: {workers: ['http://a:1']}, n: {workers: ['http://b:1']}}\nplugins:\n"
NEEDED = {
    "auth": "{single_key: sixteen-characters}",
    "billing": "{prices: prices.yaml}",
    "semantic_cache": "{domains: [{name: a}]}",
}
BEFORE = {
    "billing": "- auth: {single_key: sixteen-characters}\n",
    "quota": "- auth: {single_key: sixteen-characters}\n",
}


def faults(plugins: str) -> list[str]:
    try:
        understand(HEAD + plugins, "test.yaml")
    except ConfigError as error:
        return [str(flaw) for flaw in error.flaws]
    return []


def entry(name: str, when: str = "") -> str:
    return f"- {name}: {NEEDED.get(name, '{}')}\n" + (f"  when: {when}\n" if when else "")


@pytest.mark.parametrize("name", sorted(ALONE))
def test_a_double_is_refused_at_its_line(name: str) -> None:
    before = BEFORE.get(name, "")
    first = before.count("\n")
    [fault] = faults(f"{before}{entry(name)}- headers\n{entry(name)}")
    assert fault.startswith(
        f"test.yaml:{4 + first + 2}: plugins[{first + 2}]: `{name}` stands at plugins[{first}], too: "
    )


def test_each_is_told_once_and_by_a_bare_name_too() -> None:
    told = faults("- retry\n- retry: {}\n- retry: {attempts: 2}\n")
    assert [fault.split(": ")[1] for fault in told] == ["plugins[1]", "plugins[2]"]


APART = {
    "streams": ("{stream: true}", "{stream: false}"),
    "models": ("{model: [m]}", "{model: [n]}"),
    "routes": ("{route: [chat], stream: true}", "{route: [completions, messages]}"),
}
TOGETHER = {
    "the same": ("{model: [m]}", "{model: [m]}"),
    "one of all calls": ("", "{model: [m]}"),
    "the other of all calls": ("{model: [m]}", ""),
    "conditions of two kinds": ("{model: [m]}", "{stream: true}"),
    "a model in both": ("{model: [m, n]}", "{model: [n]}"),
}


@pytest.mark.parametrize(("one", "other"), APART.values(), ids=APART)
def test_two_that_no_call_meets_both_of(one: str, other: str) -> None:
    assert faults(entry("admission", one) + entry("admission", other)) == []


@pytest.mark.parametrize(("one", "other"), TOGETHER.values(), ids=TOGETHER)
def test_two_that_a_call_may_meet(one: str, other: str) -> None:
    assert len(faults(entry("admission", one) + entry("admission", other))) == 1


def test_others_may_stand_twice() -> None:
    plain = {"access_log": "{}", "guard": "{}", "headers": "{}", "route": "{}", "redact": "{}"}
    assert set(plain).isdisjoint(ALONE)
    twice = [f"- {name}: {options}\n" for name, options in plain.items()] * 2
    fallbacks = "- fallback: {to: [{model: m}]}\n- fallback: {to: [{model: n}]}\n"
    assert faults("".join(twice) + fallbacks) == []


def test_the_names_are_those_of_plugins() -> None:
    assert set(registry.names("plugins")) >= ALONE
