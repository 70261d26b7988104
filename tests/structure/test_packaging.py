"""That what is installed is what is in the tree."""

from __future__ import annotations

import tomllib
from importlib.metadata import entry_points

import pytest
from tree import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
FOLDERS = PROJECT["tool"]["setuptools"]["package-dir"]
GROUPS = PROJECT["project"]["entry-points"]


def test_every_folder_with_code_is_a_package_that_is_installed() -> None:
    there = set()
    for package, folder in FOLDERS.items():
        top = ROOT / folder
        for path in top.rglob("*.py"):
            there.add(".".join((package, *path.parent.relative_to(top).parts)))
    assert there == set(PROJECT["tool"]["setuptools"]["packages"])


@pytest.mark.parametrize(("group", "name"), [(group, name) for group in GROUPS for name in GROUPS[group]])
def test_an_entry_point_leads_somewhere(group: str, name: str) -> None:
    [found] = entry_points(group=group, name=name)
    assert found.value == GROUPS[group][name]
    assert callable(found.load())


def test_the_lock_file_pins_every_dependency() -> None:
    locked = {
        line.split("==")[0].lower() for line in (ROOT / "requirements.lock").read_text().splitlines() if "==" in line
    }
    project = PROJECT["project"]
    asked = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    names = {requirement.split(">")[0].split("[")[0].lower() for requirement in asked}
    assert names <= locked
