"""`tailrace init` and `tailrace schema`: files for people and for editors."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from tailrace.proxy.cli import main
from tailrace.proxy.commands.schema import both_roles


def test_init_writes_files_that_pass_the_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "--dir", str(tmp_path / "new")]) == 0
    for name in ("gateway.yaml", "worker.yaml"):
        assert main(["check", "--elsewhere", str(tmp_path / "new" / name)]) == 0


def test_init_overwrites_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "worker.yaml").write_text("mine")
    assert main(["init", "--dir", str(tmp_path)]) == 1
    assert "worker.yaml exists already" in capsys.readouterr().err
    assert [file.name for file in tmp_path.iterdir()] == ["worker.yaml"]
    assert (tmp_path / "worker.yaml").read_text() == "mine"


def test_init_where_nothing_can_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert main(["init", "--dir", str(tmp_path / "file" / "folder")]) == 1
    assert "not a directory" in capsys.readouterr().err


def shipped() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(files("tailrace.config").joinpath("schema.json").read_text())
    return loaded


def test_schema_file_is_in_step_with_the_code(tmp_path: Path) -> None:
    """Where this fails, `tailrace schema --out config/schema.json` puts it right."""
    assert main(["schema", "--out", str(tmp_path / "schema.json")]) == 0
    assert json.loads((tmp_path / "schema.json").read_text()) == shipped()


def test_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(shipped())


@pytest.mark.parametrize("name", ["gateway.yaml", "worker.yaml", "demo.yaml", "demo-worker.yaml"])
def test_files_of_the_package_fit_the_schema(name: str) -> None:
    class Loader(yaml.SafeLoader):
        """Takes `off` for text, as YAML 1.2 does."""

    Loader.yaml_implicit_resolvers = {
        key: [pair for pair in pairs if pair[0] != "tag:yaml.org,2002:bool"]
        for key, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile("^(?:true|false)$"), list("tf"))
    content = yaml.load(files("tailrace.config").joinpath(name).read_text(), Loader)
    jsonschema.Draft202012Validator(shipped()).validate(content)


ENTRIES = {
    "a name": ("route", True),
    "a name of none": ("rout", False),
    "a name that needs options": ("cors", False),
    "a path": ("tag:Tag", True),
    "no options": ({"route": None}, True),
    "no options where some are needed": ({"cors": None}, False),
    "empty options where some are needed": ({"cors": {}}, False),
    "options": ({"guard": {"models": ["m"]}}, True),
    "a misspelt plugin": ({"rout": {}}, False),
    "a misspelt option": ({"guard": {"modles": []}}, False),
    "an option further down": ({"guard": {"max_tokens": {"cup": 1}}}, False),
    "terms": ({"guard": {}, "when": {"model": ["m"]}, "on_error": "open", "budget_ms": 5}, True),
    "weight of scores": ({"route": {}, "weight": 2}, True),
    "weight of nothing": ({"guard": {}, "weight": 2}, False),
    "a misspelt term": ({"guard": {}, "onerror": "open"}, False),
    "a term of another kind": ({"guard": {}, "on_error": "opened"}, False),
    "a term further down": ({"guard": {}, "when": {"modl": ["m"]}}, False),
    "two plugins": ({"guard": {}, "route": {}}, False),
    "options of a path": ({"tag:Tag": {"any": [1]}, "when": {"stream": True}}, True),
    "a misspelt term of a path": ({"tag:Tag": {}, "wen": {}}, False),
    "terms alone": ({"on_error": "open"}, False),
    "a reference": ("${PLUGIN}", True),
    "a list": ([], False),
}


@pytest.mark.parametrize(("entry", "good"), ENTRIES.values(), ids=ENTRIES)
def test_schema_knows_plugins_as_the_check_does(entry: object, good: bool) -> None:
    gateway = {"listen": "127.0.0.1:1", "models": {"m": {"workers": ["http://a:1"]}}, "plugins": [entry]}
    assert jsonschema.Draft202012Validator(both_roles()).is_valid(gateway) is good


def test_schema_tells_the_roles_apart() -> None:
    validator = jsonschema.Draft202012Validator(shipped())
    gateway = {"listen": "127.0.0.1:1", "models": {"m": {"workers": ["http://a:1"]}}}
    worker = {"role": "worker", "listen": "127.0.0.1:1", "engine": {"url": "http://a:1"}}
    for good in (gateway, gateway | {"role": "gateway"}, worker):
        assert validator.is_valid(good)
    for bad in (worker | {"role": "gateway"}, gateway | {"role": "worker"}, gateway | {"modles": {}}, {"listen": "x"}):
        assert not validator.is_valid(bad)
