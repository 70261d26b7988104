"""`/sim/control`, for this machine only: POST arms a fault (`{"fail": "none"}` clears all), GET shows the state."""

from __future__ import annotations

from dataclasses import asdict, fields

import orjson
from tailrace.worker.sim.engine import Engine
from tailrace.worker.sim.exchange import Exchange
from tailrace.worker.sim.failures import Fault, fault_from

_AT_ONCE = ("engine_killed", "server_killed", "sigterm")
_DEFAULTS = {field.name: field.default for field in fields(Fault)}


def control(engine: Engine, exchange: Exchange) -> None:
    """Show or change what goes wrong."""
    request = exchange.request
    if request.method == "GET":
        exchange.reply(200, _state(engine))
    elif request.method != "POST":
        exchange.reply(405, b'{"detail":"Method Not Allowed"}', extra=b"allow: GET, POST\r\n")
    else:
        try:
            asked = orjson.loads(request.body)
            fault = None if asked == {"fail": "none"} else fault_from(asked)
        except ValueError as error:
            exchange.reply(400, orjson.dumps({"detail": str(error)}))
            return
        if fault is None:
            engine.failures.clear()
            exchange.reply(200, _state(engine))
        else:
            # Answered first: what comes may end this very connection.
            exchange.reply(200, orjson.dumps({"armed": _shown(fault)}))
            inflict(engine, fault)


def inflict(engine: Engine, fault: Fault) -> None:
    """Let a fault of the whole server happen now, and arm any other."""
    if fault.fail in _AT_ONCE and fault.after_tokens is None:
        engine.incident(fault)
    else:
        engine.failures.arm(fault)


def _shown(fault: Fault) -> dict[str, object]:
    return {name: value for name, value in asdict(fault).items() if name == "fail" or value != _DEFAULTS[name]}


def _state(engine: Engine) -> bytes:
    scheduler = engine.scheduler
    return orjson.dumps(
        {
            "state": engine.state,
            "running": scheduler.running,
            "waiting": scheduler.waiting,
            "load": engine.load,
            "faults": [_shown(fault) for fault in engine.failures.armed],
        }
    )
