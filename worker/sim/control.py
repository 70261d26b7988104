"""`/sim/control`, for this machine only: what goes wrong is armed, cleared and shown there, whatever the engine does.

POST `{"fail": KIND, ...}` arms a fault, or lets it happen if it is one of the whole server. POST `{"do": "clear"}`, or
`{"fail": "none"}`, clears all faults and thaws; with `"fail": KIND` those of one kind. POST `{"do": "freeze"}` and
`{"do": "thaw"}` stop and go on. GET shows the state.
"""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Any, get_args

import orjson
from tailrace.worker.sim.engine import Engine
from tailrace.worker.sim.exchange import Exchange
from tailrace.worker.sim.failures import OF_SERVER, Fault, Kind, fault_from

CONTROL = "/sim/control"
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
            _obey(engine, exchange, orjson.loads(request.body))
        except ValueError as error:
            exchange.reply(400, orjson.dumps({"detail": str(error)}))


def _obey(engine: Engine, exchange: Exchange, asked: Any) -> None:
    if asked == {"fail": "none"}:
        asked = {"do": "clear"}
    if isinstance(asked, dict) and "do" in asked:
        _do(engine, asked)
        exchange.reply(200, _state(engine))
        return
    fault = fault_from(asked)
    # Answered first: what comes may end this very connection.
    exchange.reply(200, orjson.dumps({"armed": _shown(fault)}))
    inflict(engine, fault)


def _do(engine: Engine, asked: dict[str, Any]) -> None:
    match asked:
        case {"do": "clear", **rest} if not rest:
            engine.failures.clear()
            engine.thaw()
        case {"do": "clear", "fail": str(kind), **rest} if not rest and kind in get_args(Kind):
            engine.failures.clear(kind)
        case {"do": "freeze", **rest} if not rest:
            engine.incident(Fault(fail="freeze"))
        case {"do": "thaw", **rest} if not rest:
            engine.thaw()
        case _:
            raise ValueError("`do` is clear, freeze or thaw; clear may have the `fail` of a kind beside it")


def inflict(engine: Engine, fault: Fault) -> None:
    """Let a fault of the whole server happen now, and arm any other."""
    if fault.fail in OF_SERVER and fault.after_tokens is None:
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
            "frozen": engine.stillness.frozen,
            "running": scheduler.running,
            "waiting": scheduler.waiting,
            "load": engine.load,
            "faults": [_shown(fault) for fault in engine.failures.armed],
        }
    )
