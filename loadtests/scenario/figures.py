"""From what was seen to figures, for each phase and each kind of request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from openloop.percentiles import nearest_rank
from openloop.schedule import NS

from scenario import scrape
from scenario.calm import Answers
from scenario.plan import Load, Scenario
from scenario.shot import Shot
from scenario.volley import Act, Volley

Figures = dict[str, float]
WARM = 1.25
"""So many times the median TTFT of before is as good as before."""
LONG = 200
"""An answer of more tokens is a long one."""


class Seen:
    """A play that is over. `pages`: by how much the gateways' counters grew in each act."""

    def __init__(
        self,
        scenario: Scenario,
        volley: Volley,
        right: Answers,
        pages: Sequence[scrape.Page],
        rates: Mapping[str, float],
    ) -> None:
        self.scenario = scenario
        self.volley = volley
        self._right = right
        self.pages = pages
        self.rates = rates

    def figures(self, phase: str, load: str) -> Figures:
        """All figures of a phase, or of the whole run where it is empty; of one load, or of all."""
        acts = [n for n, act in enumerate(self.volley.acts) if act.phase.name == phase or (not phase)]
        shots = [shot for shot in self.volley.shots if shot.phase in acts and load in ("", shot.load)]
        seconds = sum(self._span(self.volley.acts[n])[1] - self._span(self.volley.acts[n])[0] for n in acts) / NS
        if phase:
            shots = [shot for shot in shots if self._in_window(shot)]
        figures = self._counts(shots, seconds) | self._latencies(shots)
        if phase:
            figures |= self._of_capacity(phase, load, shots, seconds)
        if changed := [self.volley.acts[n] for n in acts if phase and "ready_ms" in self.volley.acts[n].notes]:
            figures["warm_ms"] = max(map(self._warm, changed))
        figures |= self._of_attempts([self.pages[n] for n in acts if n < len(self.pages)])
        for key in {key for n in acts for key in self.volley.acts[n].notes}:
            figures[key] = max(self.volley.acts[n].notes.get(key, 0.0) for n in acts)
        return figures

    def counters(self, phase: str) -> dict[str, float]:
        """What the gateways counted in a phase, workers taken together."""
        acts = [n for n, act in enumerate(self.volley.acts) if phase in ("", act.phase.name)]
        return scrape.totals(scrape.added([self.pages[n] for n in acts if n < len(self.pages)]))

    def wrong(self) -> Counter[str]:
        """In what answers differed from the right ones."""
        return Counter(filter(None, (self._wrong(shot) for shot in self.volley.shots)))

    def wrong_samples(self) -> list[str]:
        """Enough of some wrong answers to make them again: what was asked, and where the longest silence was."""
        told = []
        for shot in self.volley.shots:
            if wrong := self._wrong(shot):
                gaps = shot.gaps()
                after = gaps.index(max(gaps)) + 1 if gaps else 0
                phase = self.volley.acts[shot.phase].phase.name
                told.append(f"{phase}: {shot.load} prompt {shot.prompt}, longest silence after {after} pieces: {wrong}")
        return told[:10]

    def faults(self) -> Counter[str]:
        """How requests failed."""
        return Counter(shot.error_kind() or "unfinished" for shot in self.volley.shots if shot.failed)

    def samples(self) -> dict[str, str]:
        """For each kind of failure the words of one."""
        found: dict[str, str] = {}
        for shot in self.volley.shots:
            if shot.failed:
                where = f"{self.volley.acts[shot.phase].phase.name} {(shot.scheduled - self.volley.start) / NS:.2f} s"
                found.setdefault(shot.error_kind() or "unfinished", f"{where}: {shot.detail}")
        return found

    def _span(self, act: Act) -> tuple[int, int]:
        start, end = self.volley.start + act.start, self.volley.start + act.end
        if act.phase.window is not None and act.struck:
            before, after = act.phase.window
            start, end = max(start, act.struck + round(before * NS)), min(end, act.struck + round(after * NS))
        return start, end

    def _in_window(self, shot: Shot) -> bool:
        start, end = self._span(self.volley.acts[shot.phase])
        return start <= shot.scheduled < end

    def _wrong(self, shot: Shot) -> str:
        return shot.wrong(self._right[(shot.load, shot.prompt)])

    def _load(self, shot: Shot) -> Load:
        return self.scenario.load[shot.load]

    def _good(self, shot: Shot) -> bool:
        if not shot.ok:
            return False
        budget = self._load(shot).budget_ms * 1e6
        return not budget or (shot.time_to_first_token or 0) <= budget

    def _counts(self, shots: Sequence[Shot], seconds: float) -> Figures:
        refused = [shot for shot in shots if shot.refused]
        figures: Figures = {
            "requests": len(shots),
            "errors": sum(shot.failed for shot in shots),
            "inexact": sum(bool(self._wrong(shot)) for shot in shots),
            "refused": len(refused),
            "good": sum(self._good(shot) for shot in shots),
            "offered_per_s": round(len(shots) / seconds, 2) if seconds else 0.0,
            "long_share": round(sum(shot.max_tokens > LONG for shot in shots) / max(1, len(shots)), 3),
            "prompt_tokens": min((shot.usage[0] for shot in shots if shot.usage), default=0),
        }
        figures["refusal_ms"] = round(max((shot.end - shot.scheduled for shot in refused), default=0) / 1e6, 2)
        return figures

    def _latencies(self, shots: Sequence[Shot]) -> Figures:
        """Of every answer that began, ended as it may."""
        ordered = sorted(ttft for shot in shots if (ttft := shot.time_to_first_token) is not None)
        if not ordered:
            return {}
        points = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
        figures = {f"ttft_{name}_ms": round(nearest_rank(ordered, point) / 1e6, 2) for name, point in points.items()}
        gaps = [max(gaps) for shot in shots if (gaps := shot.gaps())]
        figures["gap_max_ms"] = round(max(gaps, default=0) / 1e6, 1)
        return figures

    def _of_capacity(self, phase: str, load: str, shots: Sequence[Shot], seconds: float) -> Figures:
        """What came to a good end within the phase, and what was refused beyond what had to be."""
        acts = {n for n, act in enumerate(self.volley.acts) if act.phase.name == phase}
        spans = [self._span(self.volley.acts[n]) for n in acts]
        ended = sum(
            self._good(shot) and any(start <= shot.end < end for start, end in spans)
            for shot in self.volley.shots
            if load in ("", shot.load)
        )
        used = [name for name in self.rates if load in ("", name) and any(shot.load == name for shot in shots)]
        capacity = sum(self.rates[name] for name in used)
        refused = sum(shot.refused for shot in shots)
        figures = {"goodput_per_s": round(ended / seconds, 2) if seconds else 0.0}
        if len(used) == 1:
            figures["refused_beyond"] = round(refused - max(0.0, len(shots) - 1.05 * capacity * seconds), 1)
        return figures

    def _warm(self, act: Act) -> float:
        """From what happened until the median TTFT of every second to come is as it was before."""
        before = [
            ttft
            for shot in self.volley.shots
            if shot.measured and shot.scheduled < act.struck and (ttft := shot.time_to_first_token) is not None
        ]
        bound = WARM * median(before) if before else 0.0
        seconds: dict[int, list[int]] = {}
        for shot in self.volley.shots:
            if act.struck <= shot.scheduled < self.volley.start + act.end and shot.contents:
                seconds.setdefault((shot.scheduled - act.struck) // NS, []).append(shot.contents[0] - shot.scheduled)
        cold = [second for second, ttfts in seconds.items() if median(ttfts) > bound]
        return 1000.0 * (max(cold, default=-1) + 1)

    def _of_attempts(self, pages: Sequence[scrape.Page]) -> Figures:
        page = scrape.added(list(pages))
        why = scrape.by(page, "tailrace_attempts_total", "why")
        total = sum(why.values())
        if not total:
            return {}
        extra = total - why.get("first", 0.0)
        figures = {"attempts": total, "extra_attempts": round(extra / max(1.0, why.get("first", 0.0)), 4)}
        return figures | {f"attempts_{name}": count for name, count in why.items() if name != "first"}


def as_json(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Figures in a steady order."""
    return {key: figures[key] for key in sorted(figures)}
