"""Where a call goes that its own model's workers cannot answer: another model or pool, an old answer, or a message."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, TypeVar

from tailrace.proxy.config import At, NotEmpty, setting
from tailrace.proxy.config.setting import key_of
from tailrace.proxy.plugin import Target
from tailrace.proxy.spoken import spoken
from tailrace.proxy.stored.remembered import Remembered

if TYPE_CHECKING:
    from tailrace.proxy.attempt import Attempt
    from tailrace.proxy.call import Call
    from tailrace.proxy.entry import PluginEntry
    from tailrace.proxy.fault import Fault
    from tailrace.proxy.fleet import Pool, Worker


@dataclass(frozen=True, slots=True, kw_only=True)
class Elsewhere:
    """One of the four."""

    model: Annotated[str, NotEmpty()] | None = setting(default=None, help="another model, by its name under `models`")
    pool: Annotated[str, NotEmpty()] | None = setting(
        default=None, help="another pool that serves the same model, by its name under `pools`"
    )
    message: Annotated[str, NotEmpty()] | None = setting(
        default=None, help="a text that is given as the answer; only where answers are text"
    )

    cached: bool = setting(
        default=False, help="true: an answer that `cache` keeps though it is out of date (its `stale`)"
    )

    def check(self) -> Iterable[str]:
        """Exactly one."""
        if sum(value is not None for value in (self.model, self.pool, self.message, self.cached or None)) != 1:
            yield "give one of `model`, `pool`, `message` and `cached: true`"

    @property
    def shown(self) -> str:
        """What it is, for a header and a metric's label."""
        if self.model is not None:
            return f"model={self.model}"
        if self.cached:
            return "cached"
        return f"pool={self.pool}" if self.pool is not None else "message"

    def serves(self, fault: Fault) -> bool:
        """Whether it is meant for such a fault."""
        return True

    def target(self, call: Call, tries: Sequence[Attempt], why: str) -> Target | None:
        """The target that it stands for; None where nobody takes calls there, or it has been tried."""
        if self.message is not None:
            reply = spoken(call, self.message)
            return None if reply is None else Target(reply=reply, why=why)
        if self.cached:
            old = call.fact(Remembered)
            reply = None if old is None else old.reply()
            return None if reply is None else Target(reply=reply, why=why)
        if self.model is not None:
            entry = call.chain.models.resolve(self.model)
            if entry is None or not entry.candidates or entry is call.entry:
                return None
            return None if any(attempt.entry is entry for attempt in tries) else Target(model=self.model, why=why)
        assert self.pool is not None
        pool = call.chain.pools.get(self.pool)
        if pool is None or not pool.eligible or any(_of(pool, attempt.worker) for attempt in tries):
            return None
        return Target(pool=pool, why=why)


def _of(pool: Pool, worker: Worker) -> bool:
    """Whether a worker is one of a pool's; only one that has been removed is looked for among them."""
    return pool in worker.pools if worker.pools else worker in pool.workers


ElsewhereT = TypeVar("ElsewhereT", bound=Elsewhere)


def first_of(
    choices: Sequence[ElsewhereT], call: Call, tries: Sequence[Attempt], fault: Fault, why: str
) -> tuple[ElsewhereT, Target] | None:
    """The first that is meant for a fault and can be had."""
    for choice in choices:
        if choice.serves(fault):
            target = choice.target(call, tries, why)
            if target is not None:
                return choice, target
    return None


def unknown_pools(plugins: Iterable[PluginEntry], pools: Collection[str], owned: Collection[str]) -> Iterator[At]:
    """Pools in the configurations of plugins that are neither among `pools` nor the own ones of models."""
    for number, entry in enumerate(plugins):
        for key, place, choice in _choices_of(entry.config):
            if choice.pool is not None and choice.pool not in pools and choice.pool not in owned:
                text = f"there is no pool '{choice.pool}'; pools: {', '.join(pools) or 'none'}"
                yield At(text, "plugins", number, entry.name, key, place, "pool")


def _choices_of(config: object) -> Iterator[tuple[str, int, Elsewhere]]:
    """Every choice in a configuration, with the key and the place in the list where it stands."""
    if not dataclasses.is_dataclass(config):
        return
    for field in dataclasses.fields(config):
        given = getattr(config, field.name)
        for number, choice in enumerate(given if isinstance(given, tuple) else ()):
            if isinstance(choice, Elsewhere):
                yield key_of(field), number, choice


def unknown_models(choices: Iterable[Elsewhere], models: Collection[str]) -> Iterator[str]:
    """What `tailrace check` says of models that are not configured."""
    for choice in choices:
        if choice.model is not None and choice.model not in models:
            yield f"there is no model '{choice.model}' under `models`; only an adapter that a worker lists can be meant"
