"""What `tailrace check` says of a chain whose order or company is not what its plugins need."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

import pytest
from tailrace.proxy.configuration import understand
from tailrace.proxy.notes import notes
from tailrace.proxy.plugin import Plugin
from tailrace.proxy.service_class import ServiceClass

ROOT = Path(__file__).parents[3]
HEAD = "listen: 127.0.0.1:0\nmodels:\n  m: {pool: p}\n  llama-8b: {pool: p}\n  llama-8b-fine: {pool: p}\n"
TWO = "pools: {p: {workers: ['http://a:1', 'http://b:1']}}\n"
ONE = "pools: {p: {workers: ['http://a:1']}}\n"
OTHER = "q: {workers: ['http://c:1', 'http://d:1']}}\n"
NAMED = "pools: {p: {workers: [dns: 'http://vllm.svc:8000']}}\n"


@dataclass(frozen=True, slots=True)
class Config:
    """Nothing."""


class Classes(Plugin[Config]):
    """Gives classes by rules of its own."""

    Config = Config
    provides = (ServiceClass,)


@dataclass(frozen=True, slots=True)
class Failing:
    """Cannot say what it goes by."""

    @property
    def service_classes(self) -> tuple[str, ...]:
        raise KeyError("x")


class Fails(Plugin[Failing]):
    """Goes by classes that it cannot name."""

    Config = Failing


def told(plugins: str, pools: str = ONE, model: str = "o: {pool: p}") -> list[str]:
    text = f"{HEAD}  {model}\n{pools}plugins: {plugins}\n"
    return list(notes(understand(text, "test.yaml", elsewhere=True).settings))


CLASSES = {
    "a mistyped one": (
        "[service_class, deadline: {budgets: [{class: [batch, interactiv], total: 1s}]}, route]",
        "plugins[1]: no plugin before it gives the class 'interactiv'; there are interactive, batch",
    ),
    "mistyped ones where places are": (
        "[service_class: {names: [a]}, admission: {classes: [name: a, name: x, name: y]}, route]",
        "plugins[1]: no plugin before it gives the classes 'x', 'y'; there is a",
    ),
    "one of a condition": (
        "[service_class, {headers: {}, when: {class: [interactiv]}}, route]",
        "plugins[1]: no plugin before it gives the class 'interactiv'; there are interactive, batch",
    ),
    "given behind it": (
        "[deadline: {budgets: [{class: [batch], total: 1s}]}, service_class, route]",
        "plugins[0]: put `service_class` before it, or no call has the class 'batch' there",
    ),
    "given by nobody": (
        "[{admission: {classes: [name: a, name: b], default: b}}, route]",
        "plugins[0]: no plugin before it gives the class 'a': put `service_class` there",
    ),
}


@pytest.mark.parametrize(("plugins", "note"), CLASSES.values(), ids=CLASSES)
def test_classes_that_nobody_gives(plugins: str, note: str) -> None:
    assert told(plugins) == [note]


def test_a_plugin_that_cannot_say_what_it_goes_by() -> None:
    [note] = told(f"[{__name__}:Fails, route]")
    assert note.startswith(f"plugins[0]: plugin '{__name__}:Fails' itself failed at its service classes: KeyError: 'x'")


ORDER = {
    "places before budgets": (
        "[service_class, admission, deadline: {budgets: [total: 1s]}, route]",
        "plugins[1]: put `deadline` before it, or calls wait for their places without a budget",
    ),
    "timing last": (
        "[redact, headers: {answer: {set: {a: b}}}, route, timing]",
        "plugins[3]: put `timing` first, or it does not see what `redact` and `headers` do to answers",
    ),
    "timing behind one": (
        "[redact, timing]",
        "plugins[1]: put `timing` first, or it does not see what `redact` does to answers",
    ),
    "rescue alone": (
        "[rescue, route]",
        "plugins[0]: add `retry`: `rescue` is for streams, and only once their first content is there",
    ),
    "fallback behind retry": (
        "[retry, rescue, fallback: {to: [message: later]}, route]",
        "plugins[2]: put `fallback` before `retry`, or it is asked only where `retry` names nobody",
    ),
    "guard behind rescue": (
        "[retry, rescue, guard: {max_tokens: {cap: 9}}, route]",
        "plugins[2]: put `guard` before `rescue`, which judges a request by what the engine gets",
    ),
}


@pytest.mark.parametrize(("plugins", "note"), ORDER.values(), ids=ORDER)
def test_an_order_or_a_company_that_plugins_lack(plugins: str, note: str) -> None:
    assert told(plugins, TWO if "rescue" in plugins else ONE) == [note]


UNREACHED = {
    "behind one without conditions": (
        "{ttft: 1s}, {total: 9s}",
        ["budgets[1] is never reached: budgets[0], which comes first, has no condition"],
    ),
    "behind one for more": (
        "{route: [chat, messages], ttft: 1s}, {model: [m], ttft: 1s}, {model: [m], route: [chat], ttft: 2s}",
        ["budgets[2] is never reached: budgets[0], which comes first, holds wherever it would"],
    ),
    "none": ("{model: [m], ttft: 1s}, {model: [m, llama-8b], ttft: 2s}, {route: [chat], ttft: 2s}, {total: 9s}", []),
}


@pytest.mark.parametrize(("budgets", "notes"), UNREACHED.values(), ids=UNREACHED)
def test_budgets_that_no_call_has(budgets: str, notes: list[str]) -> None:
    assert told(f"[deadline: {{budgets: [{budgets}]}}, route]") == [f"plugins[0]: {note}" for note in notes]


ADD = "add `retry` and `rescue`, or what runs at one that dies fails with it"


def test_workers_that_die_and_take_their_calls_along() -> None:
    assert told("[route]", TWO) == [f"pool 'p' has more than one worker: {ADD}"]
    assert told("[hedge, route]", NAMED) == [f"pool 'p' has more than one worker: {ADD}"]
    assert told("[retry, route]", TWO) == [
        "plugins[0]: add `rescue`: streams whose content has begun break off where their worker dies"
    ]
    assert told("[retry, rescue, route]", TWO) == []
    assert told("[route]", TWO.replace("}}\n", "}, ") + OTHER.replace("q:", "nobodys:")) == [
        f"pool 'p' has more than one worker: {ADD}"
    ]
    both = TWO.replace("}}\n", "}, ") + OTHER
    assert told("[route]", both, "o: {pool: q}") == [f"pools 'p', 'q' have more than one worker: {ADD}"]


def test_nobody_else_to_ask() -> None:
    assert told("[hedge, retry, rescue, route]", ONE) == [
        "no pool has a second worker: `retry` can only ask it again, `hedge` does nothing, `rescue` does nothing; "
        "add workers"
    ]
    assert told("[retry, route]", ONE) == ["no pool has a second worker: `retry` can only ask it again; add workers"]
    assert told("[route]", ONE) == []
    assert told("[hedge, retry, rescue, route]", NAMED) == []
    mixed = "pools: {p: {workers: ['http://a:1']}, q: {workers: ['http://b:1', 'http://c:1']}}\n"
    assert told("[hedge, retry, rescue, route]", mixed, "o: {pool: q}") == []


FINE = {
    "classes by one that does not say which": "[" + __name__ + ":Classes, {route: {}, when: {class: [x]}}]",
    "two that give": "[{service_class: {names: [a]}, when: {model: [m]}}, {service_class: {names: [b]}, when: "
    "{model: [llama-8b]}}, {route: {}, when: {class: [a, b]}}]",
    "what must be first": "[cors: {origins: ['*']}, access_log, timing, route]",
    "places and no budgets": "[service_class, admission, route]",
    "two of one": "[service_class, {deadline: {budgets: [ttft: 1s]}, when: {stream: true}}, admission, "
    "{deadline: {budgets: [total: 2s]}, when: {stream: false}}, route]",
}


@pytest.mark.parametrize("plugins", FINE.values(), ids=FINE)
def test_nothing_is_said_of_what_is_well(plugins: str) -> None:
    assert told(plugins) == []


CHAIN = re.compile(r"^( *)(plugins:\n(?:\1[ -].*\n)+)", re.MULTILINE)


def chains() -> dict[str, str]:
    """Every chain that the repository shows or runs, by its file and its place in it."""
    files = [ROOT / "README.md", ROOT / "plugins/README.md", *ROOT.glob("config/*.yaml")]
    files += [*ROOT.glob("loadtests/bench/*.yaml"), *ROOT.glob("loadtests/scenarios/*.yaml")]
    found = {
        f"{file.relative_to(ROOT)}:{number}": dedent("".join(chain))
        for file in files
        for number, chain in enumerate(CHAIN.findall(file.read_text()))
    }
    # Plugins of the reader's own are not here.
    return {place: chain for place, chain in found.items() if ":Tag" not in chain and ":Cache" not in chain}


CHAINS = chains()


@pytest.mark.parametrize("plugins", CHAINS.values(), ids=CHAINS)
def test_nothing_is_said_of_what_we_show_ourselves(plugins: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UPSTREAM_TOKEN", "x")
    chain = plugins.removeprefix("plugins:")
    assert told(chain, TWO if re.search(r"^ *- rescue", chain, re.MULTILINE) else ONE) == []


def test_the_chains_that_are_begun_with_are_for_several_workers() -> None:
    begun = [chain for place, chain in CHAINS.items() if place.split(":")[0] in ("README.md", "config/demo.yaml")]
    assert len(begun) == 3
    for chain in begun:
        assert told(chain.removeprefix("plugins:"), TWO) == []


def test_there_are_chains_in_every_kind_of_file() -> None:
    assert {place.split(":")[0] for place in CHAINS} >= {
        "README.md", "plugins/README.md", "config/gateway.yaml", "loadtests/scenarios/_fleet.yaml",
    }  # fmt: skip
