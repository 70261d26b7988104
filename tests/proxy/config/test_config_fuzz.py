"""Whatever stands in a file, the answer is a configuration or a ConfigError."""

# ruff: noqa: E501 -- a table reads best with one case a line

import contextlib

import pytest
import yaml
from config_samples import Sample, read_sample
from hypothesis import example, given
from hypothesis import strategies as st
from tailrace.proxy.config import ConfigError, read, render, tree

SCRAP = st.sampled_from(
    [*"[]{}:,&*!|>'\"#%@`?-$~=<", "\n", "\n  ", "\n- ", ": ", "&a ", "*a", "<<: ", "---\n", "...\n", "!!", "${", "${N}", "${file:", "}", "5", "5s", "on"]
)  # fmt: skip
FIELD = st.sampled_from([f"{key}: " for key in Sample.__dataclass_fields__])
YAML_LIKE = st.lists(SCRAP | FIELD | st.text(max_size=3), max_size=40).map("".join)


def reads(text: str) -> None:
    with contextlib.suppress(ConfigError):
        render(read_sample(text, {"N": "5"}))


@given(st.text())
def test_any_text(text: str) -> None:
    reads(text)


@given(YAML_LIKE)
@example("? a")
@example("%YAML 9.9\n---\n")
@example("a: !<> b")
@example("'\\")
def test_text_like_yaml(text: str) -> None:
    reads(text)


@given(st.lists(st.tuples(FIELD, SCRAP | st.text()), max_size=8))
def test_any_value_of_any_field(pairs: list[tuple[str, str]]) -> None:
    reads("\n".join(key + value for key, value in pairs))


@given(st.binary())
def test_any_bytes(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_bytes(content)
    with contextlib.suppress(ConfigError):
        read(path, environ={})


@given(YAML_LIKE)
def test_the_same_without_libyaml(text: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tree, "_LOADER", yaml.SafeLoader)
        reads(text)
