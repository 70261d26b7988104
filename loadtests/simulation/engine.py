"""An inference engine: prompts are worked off in order, less what its cache has of them; answers grow side by side.

First content of a call comes when the prompts before it and its own are done. Every answer under way slows prompts and
other answers a little. Where all slots are taken, calls wait for an answer to end.
"""

from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from simulation.clock import VirtualClock


@dataclass(frozen=True)
class Profile:
    """An H200-class engine with a model of some 30B parameters, in round figures."""

    prompt_tokens_per_second: float = 12_000.0
    step: float = 0.015
    """Seconds for a token of every answer, and what an answer under way adds to it."""
    step_per_answer: float = 0.0002
    slots: int = 64
    cache_tokens: int = 250_000
    slower: float = 1.0


@dataclass
class Work:
    """A call as an engine sees it: parts of the prompt as (name, tokens), and the tokens of the answer."""

    parts: list[tuple[int, int]]
    answer_tokens: int
    first_content: Callable[[], None]
    done: Callable[[], None]
    cached: int = 0

    @property
    def tokens(self) -> int:
        """Of the prompt."""
        return sum(tokens for _, tokens in self.parts)


@dataclass
class Engine:
    """One worker's."""

    clock: VirtualClock
    profile: Profile
    queue: deque[Work] = field(default_factory=deque)
    answering: int = 0
    busy: bool = False
    _cache: OrderedDict[tuple[int, ...], int] = field(default_factory=OrderedDict)
    _cached: int = 0

    @property
    def running(self) -> int:
        """Calls that have begun."""
        return self.answering + self.busy

    def take(self, work: Work) -> None:
        """A call arrives."""
        self.queue.append(work)
        self._next()

    def _next(self) -> None:
        if self.busy or not self.queue or self.running >= self.profile.slots:
            return
        work = self.queue.popleft()
        self.busy = True
        work.cached = self._find(work)
        speed = self.profile.prompt_tokens_per_second / (1.0 + 0.01 * self.answering)
        seconds = (work.tokens - work.cached) / speed + self._step()
        self.clock.after(seconds * self.profile.slower, lambda: self._prompt_done(work))

    def _step(self) -> float:
        return self.profile.step + self.profile.step_per_answer * self.answering

    def _prompt_done(self, work: Work) -> None:
        self.busy = False
        self._keep(work)
        self.answering += 1
        seconds = work.answer_tokens * self._step() * self.profile.slower
        self.clock.after(seconds, lambda: self._answer_done(work))
        work.first_content()
        self._next()

    def _answer_done(self, work: Work) -> None:
        self.answering -= 1
        work.done()
        self._next()

    def _find(self, work: Work) -> int:
        """The tokens of the longest beginning that is cached; the last part is always computed."""
        found = 0
        chain: tuple[int, ...] = ()
        for name, tokens in work.parts[:-1]:
            chain = (*chain, name)
            if chain not in self._cache:
                break
            self._cache.move_to_end(chain)
            found += tokens
        return found

    def _keep(self, work: Work) -> None:
        chain: tuple[int, ...] = ()
        for name, tokens in work.parts:
            chain = (*chain, name)
            if chain not in self._cache:
                self._cached += tokens
                self._cache[chain] = tokens
            self._cache.move_to_end(chain)
        while self._cached > self.profile.cache_tokens:
            _, tokens = self._cache.popitem(last=False)
            self._cached -= tokens
