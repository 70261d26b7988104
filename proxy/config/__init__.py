"""Configuration: one YAML file into typed, frozen dataclasses, every fault with its line.

A dataclass may have, beside its fields:
- `shorthand: ClassVar[str]`: the field that a bare value, instead of a mapping, stands for;
- `check(self) -> Iterable[str | At]`: faults between fields, reported at the mapping's line, or at the line of the
  entry that an `At` names. A field that could not be decoded is missing from `self`, and so is such an element from
  its list, which ends the check: what does not need it stands in a `check_…` of its own;
- `look(self) -> Iterable[str | At]`: what is missing outside the file, such as files and folders that it names. Asked
  only where the file is to be used on this machine; it opens no socket and changes nothing;
- `from_node(cls, node, flaws) -> Self | None`: a classmethod that reads a special shape (`decode_fields` reads the
  ordinary one), with `to_plain(self)` to write it back and the classmethod `node_schema(cls, nested)` to describe it
  (`nested` gives the schema of another type).
"""

from tailrace.proxy.config.bounds import Above, AtLeast, AtMost, Bound, Matching, NotEmpty, Port, Share
from tailrace.proxy.config.compound import OrAlone
from tailrace.proxy.config.decode import decode, decode_as, decode_fields, decode_source
from tailrace.proxy.config.defaults import defaults
from tailrace.proxy.config.flaws import ConfigError, Flaw, Flaws
from tailrace.proxy.config.node import Node
from tailrace.proxy.config.parsed import Parsed
from tailrace.proxy.config.place import At
from tailrace.proxy.config.render import render
from tailrace.proxy.config.schema import schema
from tailrace.proxy.config.secret import MASK, Hidden, Secret
from tailrace.proxy.config.setting import setting
from tailrace.proxy.config.simple import Covered
from tailrace.proxy.config.source import Source, parse, read, text_of
from tailrace.proxy.config.units import Seconds, SecondsOrOff, Size

__all__ = [
    "MASK",
    "Above",
    "At",
    "AtLeast",
    "AtMost",
    "Bound",
    "ConfigError",
    "Covered",
    "Flaw",
    "Flaws",
    "Hidden",
    "Matching",
    "Node",
    "NotEmpty",
    "OrAlone",
    "Parsed",
    "Port",
    "Seconds",
    "SecondsOrOff",
    "Secret",
    "Share",
    "Size",
    "Source",
    "decode",
    "decode_as",
    "decode_fields",
    "decode_source",
    "defaults",
    "parse",
    "read",
    "render",
    "schema",
    "setting",
    "text_of",
]
