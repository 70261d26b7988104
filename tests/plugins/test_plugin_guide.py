"""The plugin author's guide says what is true: its code runs, and it names every phase and every option."""

from __future__ import annotations

import dataclasses
import re
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes import run
from tailrace.proxy import pipeline, registry
from tailrace.proxy.config import defaults
from tailrace.proxy.config.defaults import nested as nested_of
from tailrace.proxy.config.setting import help_of
from tailrace.proxy.config.shapes import record_of
from tailrace.proxy.entry import Terms
from tailrace.proxy.plugin import Needs, Verdict

GUIDE = (Path(__file__).parents[2] / "plugins/README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
BUILT_IN = [
    name for name in registry.names("plugins") if registry.plugin(name).__module__.startswith("tailrace.plugins.")
]


def helps(config: type, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Every option's dotted name and help."""
    for key, (field, shape) in record_of(config).fields.items():
        yield prefix + key, help_of(field)
        inner = nested_of(shape)
        if inner is not None:
            yield from helps(inner[0].cls, f"{prefix}{key}{inner[1]}.")


def rows(name: str) -> list[str]:
    """The guide's table of one plugin."""
    config = registry.plugin(name).Config
    said = dict(helps(config))
    return [f"| `{name}` | `{option}` | {default} | {said[option]} |" for option, default, _ in defaults(config)]


@pytest.mark.parametrize("name", BUILT_IN)
def test_the_table_has_every_option_with_its_default(name: str):
    for row in rows(name):
        assert row in GUIDE


def test_the_table_has_nothing_else():
    table = [line for line in GUIDE.splitlines() if re.match(rf"\| `(?:{'|'.join(BUILT_IN)})` \|", line)]
    assert sorted(table) == sorted(row for name in BUILT_IN for row in rows(name))


@pytest.mark.parametrize("phase", pipeline._PHASES)
def test_every_phase_is_described(phase: str):
    assert re.search(rf"^\| \d+ \| `(async )?{phase}\(", GUIDE, re.MULTILINE)


def test_the_phases_stand_in_order():
    assert re.findall(r"^\| \d+ \| `(?:async )?(\w+)\(", GUIDE, re.MULTILINE) == list(pipeline._PHASES)


def test_other_names_are_described():
    names = [field.name for field in dataclasses.fields(Terms)]
    names += [need.name for need in Needs if need.name] + [f"Verdict.{verdict.name}" for verdict in Verdict]
    for name in names:
        assert f"`{name}" in GUIDE, name


def test_its_plugin_is_short_and_its_test_passes(tmp_path, monkeypatch):
    plugin = BLOCKS[0]
    test = next(block for block in BLOCKS if "def test_" in block)
    assert len([line for line in plugin.splitlines() if line]) <= 20
    module = types.ModuleType("tag")
    monkeypatch.setitem(sys.modules, "tag", module)
    exec(compile(plugin, "tag.py", "exec"), vars(module))
    here: dict[str, object] = {"__name__": "test_tag"}
    exec(compile(test, "test_tag.py", "exec"), here)
    tests = [value for name, value in here.items() if name.startswith("test_")]
    assert tests
    for one in tests:
        one()


def test_every_block_of_code_compiles():
    for block in BLOCKS:
        compile(block, "README.md", "exec")
    assert len(BLOCKS) >= 4


def test_a_tap_of_the_guide_gives_the_same_for_every_feed():
    block = next(block for block in BLOCKS if "class Shout" in block)
    module = types.ModuleType("shout")
    sys.modules["shout"] = module
    try:
        exec(compile(block, "shout.py", "exec"), vars(module))
        from tailrace.proxy.testing import plugin_bench, stream_of

        async def main():
            for feed in ("whole", "split", "joined", "bytes"):
                async with plugin_bench(module.Loud, answer=stream_of(["hel", "lo"]), feed=feed) as bench:
                    answer = await bench.post("/v1/chat/completions", {"model": "m", "messages": [], "stream": True})
                    texts = [event.json()["choices"][0]["delta"].get("content") for event in answer.events[:-1]]
                    assert texts == ["", "HEL", "LO", None]

        run(main())
    finally:
        del sys.modules["shout"]
