"""Says which class of service a call has, for queues, budgets, prices and metrics.

What a caller asks for by a header counts where its key or token allows that class, or where a trusted proxy says it;
from anybody else the header means nothing. Without one it is the class of the route, else the first that the caller's
key or token names, else the default.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from tailrace.plugins.service_class_choice import Choice
from tailrace.proxy.config import At, NotEmpty, setting
from tailrace.proxy.plugin import Plugin
from tailrace.proxy.routes import NAMES
from tailrace.proxy.service_class import ServiceClass as Fact

if TYPE_CHECKING:
    from tailrace.proxy.call import Call


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The classes there are, and who has which."""

    names: Annotated[tuple[str, ...], NotEmpty()] = setting(
        default=("interactive", "batch"), help="the classes there are", why="each is a label of metrics"
    )
    default: str | None = setting(default=None, help="of whom nothing else is said; the first of `names` without it")
    routes: dict[str, str] = setting(default_factory=dict, help="the class of a route, such as {embeddings: batch}")
    header: Annotated[str, NotEmpty()] = setting(
        default="x-tailrace-class", help="by which callers ask for a class that they may have"
    )

    def check(self) -> Iterable[At]:
        """Classes that are none, and routes that no call can have."""
        if self.default is not None and self.default not in self.names:
            yield At(f"there is no class '{self.default}'; classes: {', '.join(self.names)}", "default")
        for route, name in self.routes.items():
            if route not in NAMES:
                yield At(f"there is no route '{route}'; routes: {', '.join(NAMES)}", "routes", route)
            if name not in self.names:
                yield At(f"there is no class '{name}'; classes: {', '.join(self.names)}", "routes", route)


_Config = Config  # inside the class the name means its attribute


class ServiceClass(Plugin[Config]):
    """Stands behind `auth` and before whatever goes by the class."""

    Config = Config
    provides = (Fact,)

    def __init__(self, config: _Config) -> None:
        super().__init__(config)
        self._choice = Choice(config)

    @property
    def on_request(self) -> Callable[[Call], None]:
        """Find the class; raises Reject for one that there is not, or that the caller may not have."""
        return self._choice.choose
