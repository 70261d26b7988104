"""A tool call in Anthropic's events."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import orjson
from tailrace.worker.sim.exchange import chunk
from tailrace.worker.sim.sequence import Plan, Sequence


class ToolBlocks:
    """The one `tool_use` block of a planned call."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def events(self, seq: Sequence) -> tuple[bytes, bool]:
        """The events for the latest token, framed, and whether the block begins with them."""
        at = len(seq.ids) - 1
        arguments = self._plan.arguments
        if at == arguments.start - 1:
            block: dict[str, Any] = {
                "type": "tool_use",
                "id": f"chatcmpl-tool-{uuid4().hex[16:]}",
                "name": self._plan.tool,
                "input": {},
            }
            start = {"type": "content_block_start", "content_block": block, "index": 0}
            return chunk(b"event: content_block_start\ndata: %b\n\n" % orjson.dumps(start)), True
        if at in arguments and seq.delta:
            return chunk(
                b'event: content_block_delta\ndata: {"type":"content_block_delta","delta":'
                b'{"type":"input_json_delta","partial_json":"%b"},"index":0}\n\n' % seq.delta
            ), False
        return b"", False
