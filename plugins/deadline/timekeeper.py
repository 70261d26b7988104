"""Gives each call its budget, refuses early what cannot be in time, and ends what is not: what `deadline` does.

Apart from the plugin, which is not compiled, so that its phases are these methods, with no step between.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from tailrace.plugins.deadline.alarms import Alarms
from tailrace.plugins.deadline.budgets import Allotted, Budgets
from tailrace.plugins.deadline.forecast import Forecast
from tailrace.proxy.fault import Fault, Reject, Whose
from tailrace.proxy.outcome import AttemptEnd
from tailrace.proxy.service_class import ServiceClass

if TYPE_CHECKING:
    from tailrace.plugins.deadline.settings import Config
    from tailrace.proxy.attempt import Attempt
    from tailrace.proxy.budget import Budget
    from tailrace.proxy.call import Call
    from tailrace.proxy.outcome import Outcome

_S: Final = 1e-9
_NS: Final = 1e9
_MS: Final = 1_000_000
_TOTAL: Final = "total_timeout"
_FIRST: Final = "first_content_timeout"
_TIMEOUT: Final = "_timeout"


class Timekeeper:
    """Of one chain in one process; moments are monotonic nanoseconds, of `clock`."""

    __slots__ = ("_budgets", "_refuses_early", "alarms", "clock", "forecast", "missed", "refused")

    def __init__(self, config: Config, clock: Callable[[], int]) -> None:
        self.clock = clock
        self.forecast = Forecast()
        self.alarms = Alarms(clock, self._over)
        self._budgets = Budgets(config.budgets)
        self._refuses_early = config.refuse_early
        self.refused: dict[tuple[str, str], int] = {}
        self.missed: dict[tuple[str, str, str], int] = {}

    def begin(self, call: Call) -> None:
        """Find the budget and start its clock; raises Reject where it cannot be kept."""
        if call.route.local is not None:
            return
        budget = call.time = self._budgets.of(call)
        if budget is None or not budget.due_ns:
            return
        now = self._refuse_late(call, budget)
        entry = call.entry
        if self._refuses_early and entry is not None:
            least, ample = self.forecast.times(entry.name, call.size, _begins(call), now * _S)
            if ample > 0.0:
                budget.least_ns, budget.ample_ns = int(least * _NS), int(ample * _NS)
        budget.alarm = self.alarms.set(call, budget.due_ns, now)

    def recheck(self, call: Call) -> None:
        """A wait may have cost too much of it."""
        budget = call.time
        if budget is not None and budget.due_ns:
            self._refuse_late(call, budget)

    def _refuse_late(self, call: Call, budget: Budget) -> int:
        """Raise Reject where nothing can be in time; the present moment."""
        now = self.clock()
        left = budget.left_ns(now)
        if left is None:
            return now
        if left <= 0:
            raise self._too_late(call, budget, 0.0)
        entry = call.entry
        if self._refuses_early and entry is not None:
            usual = self.forecast.speaks_against(entry.name, call.size, _begins(call), left * _S, now * _S)
            if usual > 0.0:
                raise self._too_late(call, budget, usual)
        return now

    def _too_late(self, call: Call, budget: Budget, usual: float) -> Reject:
        kind = _model(call), _class(call)
        self.refused[kind] = self.refused.get(kind, 0) + 1
        total = (budget.due_ns - call.started_ns) // _MS
        text = f"The request cannot be answered within its budget of {total} ms"
        if usual:
            text += f"; {usual * 1e3:.0f} ms are usual now"
        wait = max(usual, 1.0)
        return Reject(503, "deadline_unmeetable", f"{text}.", retry_after=wait, whose=Whose.GATEWAY, kind="too_late")

    # Time passes.

    def _over(self, call: Call) -> None:
        budget, race = call.time, call.race
        assert budget is not None
        shown = race is not None and race.winner is not None
        kind = _FIRST if budget.due_ns == budget.first_ns and not shown else _TOTAL
        what = kind.removesuffix(_TIMEOUT), _model(call), _class(call)
        self.missed[what] = self.missed.get(what, 0) + 1
        due = budget.first_ns if kind == _FIRST else budget.ends_ns
        call.stop(_missed(kind, (due - call.started_ns) // _MS))

    def committed(self, call: Call, attempt: Attempt) -> None:
        """Learn, and go on to the end's moment where that of the first content is kept."""
        now = self.clock()
        if attempt.sent_ns and (attempt.streaming or not _begins(call)):
            took = attempt.first_content_ns - attempt.sent_ns
            self.forecast.note(attempt.entry.name, call.size, _begins(call), took * _S, now * _S)
        budget = call.time
        if isinstance(budget, Allotted) and budget.first_ns and budget.alarm:
            self.alarms.drop(call, budget.alarm)
            if budget.ends_ns:
                budget.alarm = self.alarms.set(call, budget.ends_ns, now)

    def ended(self, call: Call, attempt: Attempt, end: AttemptEnd) -> None:
        """Learn from what had not come yet."""
        if attempt.first_content_ns or not attempt.sent_ns or end is AttemptEnd.WON or call.client.gone:
            return
        if _begins(call) and not call.stream:
            return
        fault = attempt.fault
        if fault is None or fault.kind.endswith(_TIMEOUT):
            now = self.clock()
            waited = now - attempt.sent_ns
            self.forecast.note_late(attempt.entry.name, call.size, _begins(call), waited * _S, now * _S)

    def allows(self, call: Call, tries: Sequence[Attempt], why: str) -> bool:
        """No attempt that cannot be in time."""
        budget = call.time
        if budget is None or not budget.due_ns:
            return True
        now = self.clock()
        race = call.race
        if race is not None and race.winner is not None:
            # Something was shown: what remains is the end.
            return not budget.ends_ns or budget.ends_ns - budget.reserve_ns > now
        left = budget.left_ns(now)
        entry = call.entry
        if left is None or entry is None:
            return True
        return left > 0 and self.forecast.times(entry.name, call.size, _begins(call), now * _S)[0] <= left * _S

    def completed(self, call: Call, outcome: Outcome) -> None:
        """Its time does not matter any more."""
        budget = call.time
        if isinstance(budget, Allotted) and budget.alarm:
            self.alarms.drop(call, budget.alarm)


def _begins(call: Call) -> bool:
    """Whether its answer may come bit by bit: how long all of it takes says nothing of others then.

    Those that are asked for as a whole are not there before the first bit would be.
    """
    return call.route.dialect is not None


def _model(call: Call) -> str:
    return "" if call.entry is None else call.entry.name


def _class(call: Call) -> str:
    fact = call.fact(ServiceClass)
    return "" if fact is None else fact.name


def _missed(kind: str, ms: int) -> Fault:
    what = "the first content" if kind == _FIRST else "the answer"
    return Fault(
        kind=kind,
        whose=Whose.GATEWAY,
        status=504,
        code="deadline_exceeded",
        message=f"The budget of {ms} ms for {what} was not enough.",
    )
