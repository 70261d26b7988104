"""What a sidecar serves: inference, the list of models, its health and its state feed. The engine's other paths stay
out of reach, since an engine's own key does not cover them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import orjson
from tailrace.proxy.births import Births
from tailrace.proxy.call import Call
from tailrace.proxy.fleet import ModelEntry, Models, Pool, Worker
from tailrace.proxy.health import health_routes, readyz
from tailrace.proxy.replies import not_found, options
from tailrace.proxy.reply import Reply
from tailrace.proxy.routes import INFERENCE, Route, RouteTable, Shape
from tailrace.proxy.watch.feed import PATH
from tailrace.worker import settings as written
from tailrace.worker.report import Report
from tailrace.worker.state_feed import StateFeed


class EngineEntry(ModelEntry):
    """One model name of the engine's or, without a name, every other: it leads to the engine, as it is written.

    A drained engine still gets the calls that were admitted before; refusing new ones is the first link's part.
    """

    __slots__ = ("_rebuilt",)

    def __init__(self, pool: Pool, rebuilt: Callable[[], None], name: str = "") -> None:
        super().__init__(name, pool, name)
        self._rebuilt = rebuilt

    def rebuild(self) -> None:
        """Follow the engine's standing."""
        self.candidates = [worker for worker in self.pool.workers if not worker.standing.dead]
        self._rebuilt()


class OnlyBirths(Births):
    """Whatever response a call refers to, there is one engine that can have made it."""

    def __init__(self) -> None:
        """No table is needed."""

    def remember(self, response_id: str, worker: Worker, model: str) -> None:
        """Nothing to note."""

    def find(self, response_id: str, workers: Iterable[Worker]) -> Worker | None:
        """The engine."""
        return next(iter(workers), None)

    def model(self, response_id: str, entries: Iterable[ModelEntry]) -> ModelEntry | None:
        """The engine knows."""
        return None


def any_model(entry: ModelEntry) -> Models:
    """Models of which every name is known."""
    return Models({}, {}, otherwise=entry)


def name_models(models: Models, pool: Pool, names: Iterable[str]) -> None:
    """Give the models that the engine lists entries of their own, by which calls are counted."""
    wanted = set(names)
    for name in [name for name in models.adapters if name not in wanted]:
        pool.detach(models.adapters.pop(name))
    for name in wanted - models.adapters.keys():
        models.adapters[name] = entry = EngineEntry(pool, _nothing, name)
        pool.attach(entry)
        entry.rebuild()


def _nothing() -> None:
    return


def route_table(settings: written.Worker, pools: Mapping[str, Pool], report: Report, feed: StateFeed) -> RouteTable:
    """The paths of a sidecar's data port."""
    served = (route for route in INFERENCE if route.path not in settings.blocked)
    table = RouteTable((*served, *health_routes(readyz(report.unready))), not_found, options)
    for method in ("GET", "HEAD"):
        table.add(Route("/v1/models", "models", method, Shape.OPAQUE, local=_lister(report)))
    table.add(Route(PATH, "state", "GET", Shape.OPAQUE, local=feed.open))
    for route in settings.routes:
        for method in route.methods:
            pool = pools[route.pool]
            entry = ModelEntry(route.path, pool, route.path)
            pool.attach(entry)
            entry.rebuild()
            table.add(Route(route.path, "pass_through", method, Shape.OPAQUE, entry=entry))
    return table


def _lister(report: Report) -> Callable[[Call], Reply]:
    def list_models(call: Call) -> Reply:
        listed = [
            {
                "id": model.id,
                "object": "model",
                "created": call.chain.created,
                "owned_by": "tailrace",
                "parent": model.parent,
                "max_model_len": model.max_length,
            }
            for model in report.engine.models
        ]
        return Reply(200, orjson.dumps({"object": "list", "data": listed}), source="models")

    return list_models
