"""The plugin chain compiled once: one tuple of bound methods a phase, in the order in which they are called."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tailrace.proxy.logs import Seldom
from tailrace.proxy.plugin import AnyPlugin, Needs, Plugin, Tap, Target, Verdict

if TYPE_CHECKING:
    from tailrace.proxy.attempt import Attempt
    from tailrace.proxy.call import Call
    from tailrace.proxy.fault import Fault
    from tailrace.proxy.fleet import Worker
    from tailrace.proxy.head import Head
    from tailrace.proxy.outcome import AttemptEnd, Outcome
    from tailrace.proxy.reply import Reply
    from tailrace.proxy.sse import Event

_PHASES: Final = tuple(
    name
    for name, member in vars(Plugin).items()
    if inspect.isfunction(member) and not name.startswith("_") and name not in ("running", "host_part")
)
OVERRUNS: Final = 10.0
"""Seconds between two lines of the log about one plugin's overrun budgets."""
_LOOKS_LIKE_PHASE: Final = ("on_", "score_", "next_")


Scorer = tuple[float, Callable[[Any, Any], Any]]
"""The weight of a plugin's scores, and where they come from."""


class ChainError(Exception):
    """The plugins cannot form a chain; the text says which and why, `link` its place in the list where it has one."""

    def __init__(self, text: str, link: int | None = None) -> None:
        super().__init__(text)
        self.link = link


@dataclass(frozen=True, slots=True)
class Link:
    """One entry of the chain: the plugin and what its YAML entry says of it."""

    plugin: AnyPlugin
    name: str
    when: Callable[[Call], bool] | None = None
    budget: float | None = None
    open_on_error: bool = False
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Admission:
    """One plugin's `on_request` with the bounds it runs under."""

    on_request: Callable[[Call], Awaitable[Reply | None] | Reply | None]
    link: Link
    bounded: bool
    """Whether a failure or a delay is undone."""
    overruns: Seldom


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Every phase of a chain. Requests meet plugins in list order, answers in reverse."""

    on_open: tuple[Callable[[Call], None], ...]
    on_request: tuple[Admission, ...]
    recheck: tuple[Callable[[Call], None], ...]
    score_workers: tuple[Scorer, ...]
    nominate: tuple[Callable[[Call, Sequence[Worker]], Sequence[Worker]], ...]
    # What these two say is taken for its truth, whatever it is.
    on_chosen: tuple[Callable[[Call, Attempt], object], ...]
    patience: tuple[Callable[[Call, Sequence[Attempt]], float | None], ...]
    next_target: tuple[Callable[[Call, Sequence[Attempt], Fault], Target | None], ...]
    allow: tuple[Callable[[Call, Sequence[Attempt], str], object], ...]
    judge: tuple[Callable[[Call, Attempt, Sequence[Event]], Verdict], ...]
    on_commit: tuple[Callable[[Call, Attempt], None], ...]
    on_attempt_end: tuple[Callable[[Call, Attempt, AttemptEnd], None], ...]
    on_answer: tuple[Callable[[Call, Head], None], ...]
    on_stream: tuple[Callable[[Call, Head], Tap | None], ...]
    on_ending: tuple[Callable[[Call, Outcome, Callable[[], None]], object], ...]
    on_complete: tuple[tuple[str, Callable[[Call, Outcome], None]], ...]
    needs: Needs
    asks: bool
    wants_usage: bool
    wants_running_usage: bool
    wants_ids: bool
    links: tuple[Link, ...]
    owners: Mapping[object, Link]
    """Whose each of the methods above is."""

    @classmethod
    def of(cls, links: Iterable[Link]) -> Pipeline:
        """Compile a chain; raises ChainError for a misspelt phase or a fact that nobody provides before its use."""
        links = tuple(links)
        for number, link in enumerate(links):
            _refuse_misspelt_phases(link, number)
        _refuse_missing_facts(links)
        inward, outward = links, links[::-1]
        owners: dict[object, Link] = {}
        needs = Needs.NOTHING
        for link in links:
            needs |= link.plugin.needs
        return cls(
            on_open=_bound("on_open", inward, owners),
            on_request=tuple(
                Admission(
                    _guarded(link, "on_request"), link, link.budget is not None or link.open_on_error, Seldom(OVERRUNS)
                )
                for link in _having("on_request", inward)
            ),
            recheck=_bound("recheck", inward, owners),
            score_workers=tuple((owners[score].weight, score) for score in _bound("score_workers", inward, owners)),
            nominate=_bound("nominate", inward, owners, otherwise=()),
            on_chosen=_bound("on_chosen", inward, owners, otherwise=True),
            patience=_bound("patience", inward, owners),
            next_target=_bound("next_target", inward, owners),
            allow=_bound("allow", inward, owners, otherwise=True),
            judge=_bound("judge", inward, owners, otherwise=Verdict.COMMIT),
            on_commit=_bound("on_commit", outward, owners),
            on_attempt_end=_bound("on_attempt_end", outward, owners),
            on_answer=_bound("on_answer", outward, owners),
            on_stream=_bound("on_stream", outward, owners),
            on_ending=_bound("on_ending", outward, owners, otherwise=False),
            on_complete=tuple((link.name, _guarded(link, "on_complete")) for link in _having("on_complete", outward)),
            needs=needs,
            asks=needs is not Needs.NOTHING,
            wants_usage=Needs.USAGE in needs,
            wants_running_usage=Needs.RUNNING_USAGE in needs,
            wants_ids=Needs.TOKEN_IDS in needs,
            links=links,
            owners=owners,
        )

    def phases_of(self, link: Link) -> list[str]:
        """The phases a link takes part in, in the order of a call; for `tailrace check`."""
        return [phase for phase in _PHASES if _overrides(link.plugin, phase)]


def hosted_links(links: Sequence[Link]) -> list[Link]:
    """The links whose plugins run something once on a host; raises ChainError where two would be the same."""
    hosted = [link for link in links if _overrides(link.plugin, "host_part")]
    for number, link in enumerate(links):
        if link in hosted and any(other.name == link.name for other in links[:number]):
            raise ChainError(f"plugin '{link.name}' can stand in a chain only once", number)
    return hosted


def _overrides(plugin: AnyPlugin, phase: str) -> bool:
    return getattr(type(plugin), phase) is not getattr(Plugin, phase)


def _having(phase: str, links: Sequence[Link]) -> list[Link]:
    return [link for link in links if _overrides(link.plugin, phase)]


def _bound(phase: str, links: Sequence[Link], owners: dict[object, Link], otherwise: Any = None) -> tuple[Any, ...]:
    methods = []
    for link in _having(phase, links):
        method = _guarded(link, phase, otherwise)
        owners[method] = link
        methods.append(method)
    return tuple(methods)


def _guarded(link: Link, phase: str, otherwise: Any = None) -> Any:
    """The bound method, behind the link's `when` if it has one."""
    method = getattr(link.plugin, phase)
    when = link.when
    if when is None:
        return method
    if phase == "score_workers":
        return lambda call, candidates: method(call, candidates) if when(call) else (1.0,) * len(candidates)
    return lambda call, *rest: method(call, *rest) if when(call) else otherwise


def _refuse_misspelt_phases(link: Link, number: int) -> None:
    for name in dir(type(link.plugin)):
        if name.startswith(_LOOKS_LIKE_PHASE) and name not in _PHASES and callable(getattr(link.plugin, name)):
            known = ", ".join(_PHASES)
            raise ChainError(f"plugin '{link.name}' has a method '{name}', which is no phase; phases: {known}", number)


def _refuse_missing_facts(links: Sequence[Link]) -> None:
    provided: set[type] = set()
    for number, link in enumerate(links):
        for fact in link.plugin.requires:
            if fact not in provided:
                raise ChainError(
                    f"plugin '{link.name}' needs {fact.__name__}, which no plugin before it provides; "
                    f"put one that does further up",
                    number,
                )
        for other in links[number + 1 :]:
            late = [fact for fact in link.plugin.heeds if fact in other.plugin.provides and fact not in provided]
            if late:
                raise ChainError(
                    f"plugin '{link.name}' goes by {late[0].__name__}, which '{other.name}' gives behind it only; "
                    f"put '{other.name}' before it",
                    number,
                )
        provided.update(link.plugin.provides)
