"""That the README, OPERATIONS.md and config/README.md say what is so: defaults, places in the code, commands, links."""

from __future__ import annotations

import ast
import re
from dataclasses import fields

import pytest
from tailrace.proxy import registry
from tailrace.proxy.config import defaults
from tailrace.proxy.configuration import understand
from tailrace.proxy.settings import Gateway
from tailrace.worker.sidecar import SidecarRole
from tree import ROOT

README = (ROOT / "README.md").read_text()
SETTINGS = (ROOT / "config/README.md").read_text()
MAKEFILE = (ROOT / "Makefile").read_text()
ROW = re.compile(r"^\| `([^`]+)` \| (.*?) \| (.*) \|$", re.MULTILINE)
PLACE = re.compile(r"`((?:proxy|plugins|worker)/[\w/]+\.py)(?:: ([\w.]+))?`")


def tables() -> list[list[tuple[str, ...]]]:
    """The rows of the gateway's table of defaults and of the sidecar's."""
    between = SETTINGS.split("<!-- defaults -->")[1].split("<!-- /defaults -->")[0]
    parts = between.split("\nA worker's file")
    assert len(parts) == 2
    return [ROW.findall(part) for part in parts]


def test_the_defaults_of_a_gateway() -> None:
    assert tables()[0] == list(defaults(Gateway))


def test_the_defaults_of_a_sidecar_that_are_not_those_of_a_gateway() -> None:
    shared = set(defaults(Gateway))
    assert tables()[1] == [row for row in defaults(SidecarRole.Settings) if row not in shared]


def test_what_only_a_gateway_has() -> None:
    [named] = re.findall(r"^A worker's file .* has the same but for (.*), and these", SETTINGS, re.MULTILINE)
    ours, theirs = ({field.name for field in fields(role)} for role in (Gateway, SidecarRole.Settings))
    assert set(re.findall("`([^`]+)`", named)) == ours - theirs


def test_every_setting_says_what_it_is() -> None:
    assert not [name for table in tables() for name, _, told in table if not told.strip()]


@pytest.mark.parametrize(("file", "name"), sorted(set(PLACE.findall(README))))
def test_a_place_in_the_code_is_there(file: str, name: str) -> None:
    tree: ast.AST = ast.parse((ROOT / file).read_text())
    for part in name.split(".") if name else ():
        found = [
            node
            for node in ast.iter_child_nodes(tree)
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.name == part
        ]
        assert found, f"{file} has no {name}"
        tree = found[0]


BLOCKS = [
    block
    for file in ("README.md", "plugins/README.md")
    for block in re.findall(r"```yaml\n(.*?)```", (ROOT / file).read_text(), re.DOTALL)
    if ":Tag" not in block and ":Cache" not in block  # plugins of the reader's own
]


@pytest.mark.parametrize("block", BLOCKS, ids=[block.split("\n", 1)[0] for block in BLOCKS])
def test_an_example_passes_the_check(block: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UPSTREAM_TOKEN", "x")
    block = block.replace("${file:/run/secrets/hop_key}", "a key of sixteen characters")
    if "listen:" not in block:
        block += "listen: 127.0.0.1:1\nmodels: {llama-8b: {workers: ['http://127.0.0.1:2']}}\n"
    understand(block, "README.md")


def share(of: str) -> tuple[float, float]:
    [found] = re.findall(rf"([\d.]+) to ([\d.]+)\s+(?:of vllm-router's CPU )?for a\s+{of}", README)
    return float(found[0]), float(found[1])


@pytest.mark.parametrize("of", ["request", "token"])
def test_the_cpu_of_a_request_and_of_a_token_is_what_was_measured(of: str) -> None:
    """Every figure beside vllm-router's in the tables of the load tests is in the range that the first page gives."""
    rows = re.findall(
        rf"^\| S.* CPU us/{of} \|.* ([\d.]+) \|$", (ROOT / "loadtests/README.md").read_text(), re.MULTILINE
    )
    low, high = share(of)
    assert rows
    assert [figure for figure in map(float, rows) if not low <= figure <= high] == []


@pytest.mark.parametrize("target", sorted(set(re.findall(r"make ([a-z-]+)", README))))
def test_a_make_target_is_there(target: str) -> None:
    assert re.search(rf"^{target}:", MAKEFILE, re.MULTILINE)


def test_the_table_of_plugins_has_all_that_come_along_and_so_has_the_chain_of_all() -> None:
    table = README.partition("## Plugins\n")[2].partition("\n## ")[0]
    built_in = sorted(registry.names("plugins"))
    assert sorted(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == built_in
    chain = (ROOT / "plugins/README.md").read_text().partition("A chain of all of them")[2].partition("```\n")[0]
    assert sorted(re.findall(r"^  - (\w+):", chain, re.MULTILINE)) == built_in


LINKS = [
    (file, *found) for file in ("README.md", "OPERATIONS.md", "config/README.md", "plugins/README.md")
    for found in sorted(set(re.findall(r"\]\(([^):#]*)(?:#([\w-]+))?\)", (ROOT / file).read_text())))
]  # fmt: skip


@pytest.mark.parametrize(("file", "link", "part"), LINKS)
def test_a_link_leads_somewhere(file: str, link: str, part: str) -> None:
    target = (ROOT / file).parent / link if link else ROOT / file
    assert target.exists(), f"{file} links to {link}"
    if part:
        headings = re.findall(r"^#+ (.*)$", target.read_text(), re.MULTILINE)
        assert part in {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
