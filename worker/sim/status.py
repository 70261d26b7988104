"""The routes that tell about the server: models, version, health, load and metrics."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import orjson
from tailrace.worker.sim.engine import VERSION, Engine
from tailrace.worker.sim.exchange import Exchange
from tailrace.worker.sim.exposition import exposition
from tailrace.worker.sim.heads import PROMETHEUS


def models(engine: Engine, exchange: Exchange) -> None:
    """The names served here: the model's own, then its adapters."""
    settings, created = engine.settings, int(engine.clock.wall())
    cards = [_card(name, created, settings.model, None, settings.max_model_len) for name in settings.names]
    cards += [_card(name, created, adapter.path, engine.name, None) for name, adapter in engine.adapters.items()]
    exchange.reply(200, orjson.dumps({"object": "list", "data": cards}))


def _card(name: str, created: int, root: str, parent: str | None, length: int | None) -> dict[str, Any]:
    permission = {
        "id": f"modelperm-{uuid4().hex[16:]}",
        "object": "model_permission",
        "created": created,
        "allow_create_engine": False,
        "allow_sampling": True,
        "allow_logprobs": True,
        "allow_search_indices": False,
        "allow_view": True,
        "allow_fine_tuning": False,
        "organization": "*",
        "group": None,
        "is_blocking": False,
    }
    card = {"id": name, "object": "model", "created": created, "owned_by": "vllm", "root": root, "parent": parent}
    return card | {"max_model_len": length, "permission": [permission]}


def health(engine: Engine, exchange: Exchange) -> None:
    """200 as long as the engine lives, draining or not."""
    sick = engine.state == "dead" or engine.failures.unhealthy
    exchange.reply(503 if sick else 200, b"", None)


def version(engine: Engine, exchange: Exchange) -> None:
    """The version this engine stands for."""
    exchange.reply(200, orjson.dumps({"version": VERSION}))


def load(engine: Engine, exchange: Exchange) -> None:
    """How many requests are being answered."""
    count = engine.load if engine.settings.enable_server_load_tracking else 0
    exchange.reply(200, orjson.dumps({"server_load": count}))


def metrics(engine: Engine, exchange: Exchange) -> None:
    """The counters."""
    exchange.reply(200, exposition(engine), PROMETHEUS)
