"""The JSON schema of a configuration, for editors."""

import json

from tailrace.proxy.config.record import SCHEMA_KEY
from tailrace.proxy.config.shape import Definitions, Json
from tailrace.proxy.config.shapes import record_of

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema(cls: type) -> Json:
    """JSON Schema 2020-12 of a file that decodes to `cls`.

    Where a value is a `${…}` reference, an editor cannot know its type: every scalar also takes such text.
    """
    definitions: Definitions = {}
    root = record_of(cls).object_schema(definitions)
    root["properties"] = {SCHEMA_KEY: {"type": "string"}, **root["properties"]}
    named = dict(sorted(definitions.values(), key=lambda item: item[0]))
    whole = {"$schema": DIALECT, "title": cls.__name__, **root, **({"$defs": named} if named else {})}
    # Tuples and number subclasses become what a file of it would hold.
    plain: Json = json.loads(json.dumps(whole))
    return plain
