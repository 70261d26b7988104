"""Which request goes where, and what is checked before it gets there."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from dataclasses import dataclass

from tailrace.worker.sim import audio, chat, completions, kept, messages, pooling, responses, scoring, status, tokens
from tailrace.worker.sim.control import CONTROL, control
from tailrace.worker.sim.engine import Engine
from tailrace.worker.sim.errors import Refusal, queue_full
from tailrace.worker.sim.exchange import Exchange
from tailrace.worker.sim.failures import AT_ONCE, Fault

Handler = Callable[[Engine, Exchange], None]


@dataclass(frozen=True, slots=True)
class Route:
    """One path: its method, its handler and the kind of model that has it."""

    method: str
    handler: Handler
    runner: str | None = None
    """`generate` or `pooling` for routes that do inference."""


ROUTES = {
    "/v1/chat/completions": Route("POST", chat.chat_completions, "generate"),
    "/v1/completions": Route("POST", completions.completions, "generate"),
    "/v1/responses": Route("POST", responses.responses, "generate"),
    "/v1/messages": Route("POST", messages.messages, "generate"),
    "/v1/messages/count_tokens": Route("POST", messages.count_tokens),
    "/v1/audio/transcriptions": Route("POST", audio.transcribe, "generate"),
    "/v1/audio/translations": Route("POST", audio.translate, "generate"),
    "/v1/embeddings": Route("POST", pooling.embeddings, "pooling"),
    "/pooling": Route("POST", pooling.pooling, "pooling"),
    "/classify": Route("POST", pooling.classify, "pooling"),
    "/v1/score": Route("POST", scoring.score, "pooling"),
    "/score": Route("POST", scoring.score, "pooling"),
    "/v1/rerank": Route("POST", scoring.rerank, "pooling"),
    "/v2/rerank": Route("POST", scoring.rerank, "pooling"),
    "/rerank": Route("POST", scoring.rerank, "pooling"),
    "/tokenize": Route("POST", tokens.tokenize),
    "/detokenize": Route("POST", tokens.detokenize),
    "/v1/models": Route("GET", status.models),
    "/health": Route("GET", status.health),
    "/ping": Route("GET", status.health),
    "/version": Route("GET", status.version),
    "/load": Route("GET", status.load),
    "/metrics": Route("GET", status.metrics),
}

_UNAUTHORIZED = b'{"error":"Unauthorized"}'
_NOT_FOUND = b'{"detail":"Not Found"}'
_NOT_ALLOWED = b'{"detail":"Method Not Allowed"}'
_NOT_HTTP = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 not HTTP at all\r\n\r\n"


def dispatch(engine: Engine, exchange: Exchange) -> None:
    """Serve one request."""
    request = exchange.request
    if engine.received.maxlen:
        engine.received.append(request)
    if request.path == CONTROL and exchange.from_loopback:
        control(engine, exchange)
        return
    if request.path.startswith("/v1") and not _may(engine, request.headers.get(b"authorization", b"")):
        exchange.reply(401, _UNAUTHORIZED, vary=False)
        return
    route = ROUTES.get(request.path) or _kept(request.path)
    if route is None or not _has(engine, route):
        exchange.reply(404, _NOT_FOUND)
    elif request.method != route.method:
        exchange.reply(405, _NOT_ALLOWED, extra=b"allow: %b\r\n" % route.method.encode())
    elif route.runner is None:
        route.handler(engine, exchange)
    else:
        _infer(engine, exchange, route.handler)


def _kept(path: str) -> Route | None:
    """The routes with the id of a response in them."""
    response_id, _, rest = path.removeprefix(kept.PREFIX).partition("/")
    if not path.startswith(kept.PREFIX) or not response_id or rest not in ("", "cancel"):
        return None
    return Route("POST", kept.cancel) if rest else Route("GET", kept.retrieve)


def _may(engine: Engine, given: bytes) -> bool:
    keys = engine.settings.api_keys
    if not keys:
        return True
    scheme, _, token = given.partition(b" ")
    return scheme.lower() == b"bearer" and any(hmac.compare_digest(token, key.encode()) for key in keys)


def _has(engine: Engine, route: Route) -> bool:
    return route.runner is None or engine.settings.runner in ("any", route.runner)


def _infer(engine: Engine, exchange: Exchange, handler: Handler) -> None:
    engine.load += 1
    exchange.on_over = lambda: _unload(engine)
    faults = engine.failures.draw(exchange.request.path)
    for fault in faults:
        if fault.fail in AT_ONCE:
            _strike(engine, exchange, handler, fault)
            return
    exchange.faults = faults
    handler(engine, exchange)


def _strike(engine: Engine, exchange: Exchange, handler: Handler, fault: Fault) -> None:
    """Let a fault happen to a request instead of its answer."""
    if fault.fail == "hang":
        if fault.for_s is not None:
            engine.clock.call_at(engine.clock.now() + fault.for_s, lambda: _late(engine, exchange, handler))
    elif fault.fail == "drop":
        exchange.cut(rst=fault.rst)
    elif fault.fail == "not_http":
        exchange.write(_NOT_HTTP)
        exchange.cut()
    else:
        raise _refusal(engine, fault)


def _late(engine: Engine, exchange: Exchange, handler: Handler) -> None:
    """Answer a request that has hung for a while; its client may be gone."""
    if exchange.over:
        return
    try:
        handler(engine, exchange)
    except Refusal as refusal:
        exchange.refuse(refusal)


def _unload(engine: Engine) -> None:
    engine.load -= 1


def _refusal(engine: Engine, fault: Fault) -> Refusal:
    if fault.fail == "queue_full":
        engine.metrics.rejected += 1
        refusal = queue_full()
    elif fault.fail == "rate_limited":
        refusal = Refusal(429, "Rate limit reached. Please try again later.", "RateLimitError")
        refusal.retry_after = 1.0
    else:
        kind = "InternalServerError" if fault.status >= 500 else "BadRequestError"
        refusal = Refusal(fault.status, fault.message, kind)
    if fault.retry_after is not None:
        refusal.retry_after = fault.retry_after
    return refusal
