"""What can be written under `admission`: the classes in their order, and how many places there are."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated

from tailrace.proxy.config import Above, At, AtLeast, AtMost, NotEmpty, Seconds, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassSettings:
    """One class of service; those that stand further up go first."""

    name: Annotated[str, NotEmpty()] = setting(help="as `service_class` names it")
    reserve: Annotated[float, AtLeast(0), AtMost(1)] = setting(
        default=0.0, help="the share of the places that no other class gets"
    )
    queue: Annotated[int, AtLeast(0)] = setting(
        default=256, help="most calls of it that wait in a process for a pool; above, 503"
    )
    wait: Annotated[Seconds, Above(0)] = setting(default=5.0, help="how long a call may wait")
    promote: Annotated[Seconds, Above(0)] | None = setting(
        default=None, help="a call that has waited for so long goes before all others", why="nobody waits for ever"
    )
    preempts: bool = setting(
        default=False,
        help="whether a call of a class further down gives up its place as long as nothing of its answer has come",
        why="little was computed, nothing was shown",
    )
    priority: int = setting(default=0, help="what engines that go by it are told; lower goes first")


INTERACTIVE = ClassSettings(name="interactive", reserve=0.25, promote=5.0, preempts=True)
BATCH = ClassSettings(name="batch", queue=1024, wait=60.0, promote=30.0, priority=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPlaces:
    """What is different about one pool."""

    capacity: Annotated[int, AtLeast(1)] | None = setting(default=None, help="calls at its workers at once")
    priority: bool = setting(
        default=False,
        help="whether its engines run with --scheduling-policy priority",
        why="others refuse a request that has a priority",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Numbers of places are those of a host: each of its processes has an equal part."""

    classes: Annotated[tuple[ClassSettings, ...], NotEmpty()] = setting(
        default=(INTERACTIVE, BATCH), help="the classes, those that go first before others"
    )
    default: str | None = setting(default=None, help="the class of calls that have none of these; the first without it")
    capacity: Annotated[int, AtLeast(1)] | None = setting(
        default=None, help="calls at the workers of a pool at once; without it, the sum of what its workers take"
    )
    per_worker: Annotated[int, AtLeast(1)] = setting(
        default=256, help="what a worker takes that does not say", why="vLLM's own default of max_num_seqs"
    )
    pools: dict[str, PoolPlaces] = setting(default_factory=dict, help="what is different about a pool, by its name")

    def check(self) -> Iterable[At]:
        """Classes that come twice, shares of more than there is, a default that is none."""
        names = [each.name for each in self.classes]
        for number, name in enumerate(names):
            if name in names[:number]:
                yield At(f"the class '{name}' is listed twice", "classes", number, "name")
        if sum(each.reserve for each in self.classes) > 1:
            yield At("more than all places are reserved", "classes")
        if self.default is not None and self.default not in names:
            yield At(f"there is no class '{self.default}'; classes: {', '.join(names)}", "default")

    @property
    def service_classes(self) -> tuple[str, ...]:
        """The classes that calls have to be given; that of all others they need not."""
        return tuple(each.name for each in self.classes if each.name != self.default)

    def unknown_names(self, models: Collection[str], pools: Collection[str]) -> Iterator[At]:
        """Pools that are not there."""
        for name in self.pools:
            if name not in pools:
                yield At(f"there is no pool '{name}'; pools: {', '.join(pools)}", "pools", name)
