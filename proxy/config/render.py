"""Writes a decoded configuration as YAML that decodes to it again."""

from typing import Any, Final

import yaml
from tailrace.proxy.config.scalars import typed
from tailrace.proxy.config.shapes import record_of

_DUMPER: Final[Any] = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class _Writer(_DUMPER):  # type: ignore[misc]  # PyYAML may be built with or without libyaml
    """Quotes text by our own rules of what unquoted text means, and writes shared values twice."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _text(writer: Any, text: str) -> yaml.Node:
    style = None if isinstance(typed(text), str) else "'"
    node: yaml.Node = writer.represent_scalar("tag:yaml.org,2002:str", text, style=style)
    return node


_Writer.add_representer(str, _text)


def render(value: object) -> str:
    """YAML of a dataclass with every default filled in; secrets are masked, durations and sizes have their unit."""
    return written(record_of(type(value)).plain(value))


def written(plain: object) -> str:
    """YAML of dicts, lists and scalars that means exactly them."""
    text: str = yaml.dump(
        _literal(plain), Dumper=_Writer, sort_keys=False, default_flow_style=False, allow_unicode=True, width=100
    )
    return text


def _literal(plain: Any) -> Any:
    if isinstance(plain, dict):
        return {key: _literal(value) for key, value in plain.items()}
    if isinstance(plain, list):
        return [_literal(value) for value in plain]
    # A dollar sign is special only before another or a brace.
    if isinstance(plain, str) and ("$$" in plain or "${" in plain):
        return plain.replace("$", "$$")
    return plain
