"""What a reader may rely on: small files, short functions, names from the domain, tests where they are looked for."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tree import CODE, LOOSE, ROOT, files, named

LONGEST_FILE = 300
LONGEST_FUNCTION = 60
EMPTY_WORDS = {"manager", "util", "utils", "helper", "helpers", "data", "info", "misc", "common"}
MACHINE_PATHS = re.compile(r"(?<![\w.])/(?:work|root|opt/(?:pypi|wheels))/")
UNFINISHED = re.compile(r"\b(?:TODO|FIXME|XXX)\b")


def parsed(*trees: str) -> Iterator[tuple[str, ast.Module]]:
    for path in files(".py", trees=trees):
        yield named(path), parse(path)


@cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def test_files_are_small() -> None:
    assert not [named(path) for path in files(".py") if len(path.read_text().splitlines()) > LONGEST_FILE]


def test_functions_are_short() -> None:
    long = [
        f"{name}: {node.name}"
        for name, tree in parsed(*CODE, "tests")
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and length(node) > LONGEST_FUNCTION
    ]
    assert not long


def length(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    assert node.end_lineno is not None
    return node.end_lineno - node.lineno + 1


def test_names_say_something() -> None:
    empty = []
    for name, tree in parsed(*CODE):
        names = [Path(name).stem, *(node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef))]
        empty += [f"{name}: {each}" for each in names if EMPTY_WORDS & set(words(each))]
    assert not empty


def words(name: str) -> Iterator[str]:
    """The words of a name, however they are put together."""
    for part in name.split("_"):
        yield from (word.lower() for word in re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])", part))


def test_modules_say_what_they_are_for() -> None:
    assert not [name for name, tree in parsed(*CODE) if not ast.get_docstring(tree)]


def test_nothing_is_tied_to_one_machine_or_left_undone() -> None:
    bad = []
    for path in [*files(), *(ROOT / name for name in LOOSE)]:
        if path == Path(__file__).resolve() or "captures" in path.parts:
            continue
        text = path.read_text(errors="replace")
        bad += [f"{named(path)}: {found}" for found in MACHINE_PATHS.findall(text)]
        if path.suffix == ".py":
            bad += [f"{named(path)}: {found}" for found in UNFINISHED.findall(text)]
    assert not bad


def test_every_test_folder_mirrors_one_of_the_code() -> None:
    for top in CODE:
        for folder in {path.parent for path in files(".py", trees=(f"tests/{top}",))}:
            counterpart = ROOT / folder.relative_to(ROOT / "tests")
            assert counterpart.is_dir(), f"{named(folder)} mirrors nothing"


def test_no_two_test_modules_are_imported_under_one_name() -> None:
    """Folders that are no packages share one namespace."""
    owners = defaultdict(list)
    for path in files(".py", trees=("tests",)):
        if not (path.parent / "__init__.py").exists() and path.name != "conftest.py":
            owners[path.name].append(named(path))
    assert not {name: found for name, found in owners.items() if len(found) > 1}
