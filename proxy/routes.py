"""The inference routes of the data port, and what each asks of the relay."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from tailrace.proxy import dialects
from tailrace.proxy.dialects import Dialect
from tailrace.proxy.fault import Reject

if TYPE_CHECKING:
    from tailrace.proxy.call import Call
    from tailrace.proxy.fleet import ModelEntry
    from tailrace.proxy.reply import Reply


class Shape(StrEnum):
    """How a request body is read for its model."""

    JSON = "json"
    MULTIPART = "multipart"
    OPAQUE = "opaque"


@dataclass(frozen=True, slots=True)
class Route:
    """One path of the data port.

    `dialect` is None where answers never stream. `expects` is a field that every good unary answer has; `text_answers`
    says that plain text is a good answer too. `local` answers in the gateway, from memory. `entry` is where an opaque
    path is forwarded to; a `pinned` one goes to the worker that made the response id in its path; `births` routes
    note such ids down. What is not `guarded` is answered past every plugin.
    """

    path: str
    name: str
    method: str = "POST"
    shape: Shape = Shape.JSON
    dialect: Dialect | None = None
    anthropic: bool = False
    expects: bytes = b""
    text_answers: bool = False
    local: Callable[[Call], Reply] | None = None
    entry: ModelEntry | None = None
    pinned: bool = False
    births: bool = False
    guarded: bool = True


def _post(path: str, name: str, dialect: Dialect | None = None, **rest: object) -> Route:
    return Route(path, name, dialect=dialect, **rest)  # type: ignore[arg-type]


_AUDIO: Final[dict[str, object]] = {"expects": b'"text"', "text_answers": True}

INFERENCE: Final[tuple[Route, ...]] = (
    _post("/v1/chat/completions", "chat", dialects.CHAT, expects=b'"choices"'),
    _post("/v1/completions", "completions", dialects.COMPLETIONS, expects=b'"choices"'),
    _post("/v1/responses", "responses", dialects.RESPONSES, expects=b'"output"', births=True),
    Route("/v1/responses/*", "responses", "*", Shape.OPAQUE, dialects.RESPONSES, pinned=True),
    # vLLM leaves the reason out where it gave the request up, and says 200.
    _post("/v1/messages", "messages", dialects.MESSAGES, anthropic=True, expects=b'"stop_reason"'),
    _post("/v1/messages/count_tokens", "count_tokens", anthropic=True, expects=b'"input_tokens"'),
    _post("/v1/embeddings", "embeddings", expects=b'"data"'),
    _post("/v1/rerank", "rerank", expects=b'"results"'),
    _post("/v1/score", "score", expects=b'"data"'),
    _post("/classify", "classify", expects=b'"data"'),
    _post("/pooling", "pooling", expects=b'"data"'),
    _post("/tokenize", "tokenize", expects=b'"tokens"'),
    _post("/detokenize", "detokenize", expects=b'"prompt"'),
    _post("/v1/audio/transcriptions", "transcriptions", dialects.AUDIO, shape=Shape.MULTIPART, **_AUDIO),
    _post("/v1/audio/translations", "translations", dialects.AUDIO, shape=Shape.MULTIPART, **_AUDIO),
)

MODELS: Final = ("/v1/models", "/v1/models/*")
"""The list of the models, and each of them."""

NAMES: Final[tuple[str, ...]] = (
    *dict.fromkeys(route.name for route in INFERENCE),
    "models",
    "pass_through",
    "unsupported",
    "unmatched",
)
"""The names that the route of a call can have, for conditions on calls."""

# Known to OpenAI clients, but state that a gateway without storage cannot keep, or nothing that vLLM does.
UNSUPPORTED: Final[tuple[tuple[str, str], ...]] = (
    ("/v1/files", "files"),
    ("/v1/uploads", "uploads"),
    ("/v1/batches", "batches"),
    ("/v1/messages/batches", "batches"),
    ("/v1/realtime", "realtime sessions"),
    ("/v1/images", "images"),
    ("/v1/audio/speech", "speech"),
    ("/v1/moderations", "moderations"),
    ("/v1/fine_tuning", "fine-tuning jobs"),
    ("/v1/assistants", "assistants"),
    ("/v1/threads", "threads"),
    ("/v1/vector_stores", "vector stores"),
)


class RouteTable:
    """Finds the route of a method and a path; what leads nowhere has a route too, which refuses."""

    __slots__ = ("_exact", "_options", "_prefixes", "_unmatched", "_unmatched_messages", "_wrong_method")

    def __init__(self, routes: Iterable[Route], unmatched: Callable[[Call], Reply], options: Callable[[Call], Reply]):
        self._exact: dict[str, dict[str, Route]] = {}
        self._prefixes: list[tuple[str, Route]] = []
        self._unmatched = Route("", "unmatched", local=unmatched, shape=Shape.OPAQUE)
        self._unmatched_messages = Route("", "unmatched", local=unmatched, shape=Shape.OPAQUE, anthropic=True)
        self._wrong_method = wrong_method
        self._options = options
        for route in routes:
            self.add(route)

    def add(self, route: Route) -> None:
        """Serve a route; a path ending in * matches everything that begins with the rest."""
        if route.path.endswith("*"):
            self._prefixes.append((route.path[:-1], route))
            return
        methods = self._exact.setdefault(route.path, {})
        methods[route.method] = route
        methods.setdefault("OPTIONS", Route(route.path, route.name, "OPTIONS", Shape.OPAQUE, local=self._options))

    def find(self, method: str, path: str) -> Route:
        """The route; never None."""
        methods = self._exact.get(path)
        if methods is not None:
            route = methods.get(method) or methods.get("*")
            if route is not None:
                return route
            known = next(iter(methods.values()))
            return self._refusing(method, path, known)
        below = None
        for prefix, route in self._prefixes:
            if path.startswith(prefix):
                if route.method in (method, "*"):
                    return route
                below = route
        if below is not None:
            return self._refusing(method, below.path, below)
        return self._unmatched_messages if path.startswith("/v1/messages") else self._unmatched

    def _refusing(self, method: str, path: str, known: Route) -> Route:
        """What a method leads to that a `known` path has not."""
        local = self._options if method == "OPTIONS" else self._wrong_method
        return Route(path, known.name, method, Shape.OPAQUE, anthropic=known.anthropic, local=local)

    def allowed(self, path: str) -> bytes:
        """The methods that a known path has, as `Allow` lists them."""
        methods = {"OPTIONS", *self._exact.get(path, ())}
        if path not in self._exact:
            methods |= {route.method for prefix, route in self._prefixes if path.startswith(prefix)}
        return ", ".join(sorted(methods - {"*"})).encode()


def wrong_method(call: Call) -> Reply:
    """A known path with a method it has not."""
    text = f"{call.head.method} is not allowed on {call.route.path}."
    allow = (b"allow", call.chain.routes.allowed(call.head.path))
    raise Reject(405, "method_not_allowed", text, headers=(allow,), kind="unmatched")
