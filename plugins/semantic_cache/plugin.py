"""Answers a question as another one like it was answered, where the two differ in nothing that counts.

What was asked last is compared by its meaning, within one tenant and one declared domain; all else of a request has to
be the same to the letter. Guards object where the two questions differ in a number, a name, a negation and the like. In
shadow, answers come from workers as ever, and it is only told what would have been given.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from tailrace.plugins.semantic_cache.asked import ASKED, BYPASS, HIT, MISS, SHADOW, Asked
from tailrace.plugins.semantic_cache.embedding import embedder_here
from tailrace.plugins.semantic_cache.memory import memory_here
from tailrace.plugins.semantic_cache.nearest import make_ready
from tailrace.plugins.semantic_cache.purging import chosen, purge
from tailrace.plugins.semantic_cache.question import ROUTES, question_of
from tailrace.plugins.semantic_cache.report import Report
from tailrace.plugins.semantic_cache.search import Search
from tailrace.plugins.semantic_cache.settings import Config as _Config
from tailrace.plugins.semantic_cache.storing import Storing, text_of
from tailrace.proxy.control import Refused
from tailrace.proxy.fault import Reject, Whose
from tailrace.proxy.identity import Identity
from tailrace.proxy.personal import Finder
from tailrace.proxy.plugin import Needs, Plugin
from tailrace.proxy.stored.giving import Manner, given
from tailrace.proxy.stored.keeping import Keep
from tailrace.proxy.stored.sources import ALIKE
from tailrace.proxy.stored.wishes import wishes_of

if TYPE_CHECKING:
    from tailrace.plugins.semantic_cache.memory import Memory
    from tailrace.plugins.semantic_cache.settings import Domain
    from tailrace.proxy.call import Call
    from tailrace.proxy.chain import Chain
    from tailrace.proxy.head import Head
    from tailrace.proxy.outcome import Outcome
    from tailrace.proxy.plugin import Tap
    from tailrace.proxy.reply import Reply
    from tailrace.proxy.stored.answer import Answer

HEADER: Final = b"x-tailrace-semantic-cache"
_SHOWN: Final = 500
"""Characters of an answer that a report shows."""


class SemanticCache(Plugin[_Config]):
    """Stands behind `auth`, and behind `cache`, which knows what is the same to the letter for less."""

    Config = _Config
    needs = Needs.USAGE
    heeds = (Identity,)

    def __init__(self, config: _Config, now: Callable[[], float] = time.time) -> None:
        super().__init__(config)
        self._now = now
        self._by_name = {domain.name: domain for domain in config.domains}
        self._by_model: dict[str, Domain] = {}
        for domain in config.domains:
            for model in domain.model:
                self._by_model.setdefault(model, domain)
        self._header = config.header.lower().encode()
        self._memory: Memory | None = None
        self._search: Search | None = None
        self._storing: Storing | None = None
        self._report = None if config.report is None else Report(config.report, config.largest_report)
        self._told = {(name, state): 0 for name in self._by_name for state in (HIT, MISS, SHADOW)}
        self._bypassed: dict[tuple[str, str], int] = {}
        self._stored = dict.fromkeys(self._by_name, 0)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Holds the model and the thread that makes answers ready; what is remembered outlives a reload."""
        personal = Finder(self.config.personal)
        self._memory = memory_here(self.config.memory, self._now)
        await asyncio.to_thread(make_ready)
        self._search = Search(await asyncio.to_thread(embedder_here), self._memory, personal)
        self._storing = Storing(personal, self._now, self._keep)
        writing = None if self._report is None else asyncio.ensure_future(self._report.write_on())
        try:
            yield
        finally:
            self._storing.close()
            if writing is not None and self._report is not None:
                writing.cancel()
                await asyncio.to_thread(self._report.flush)

    def on_request(self, call: Call) -> Reply | Coroutine[Any, Any, Reply | None] | None:
        """Answer from memory where there is an answer; a coroutine where looking takes its time."""
        search = self._search
        if call.route.name not in ROUTES or call.entry is None or search is None:
            return None
        domain = self._domain_of(call)
        if domain is None:
            return None
        identity = call.fact(Identity)
        asked = call[ASKED] = Asked(domain, identity, wishes_of(call), call.started_ns)
        why = self._ask(call, asked)
        question = asked.question
        if question is None:
            self._bypass(asked, why)
            return None
        if search.slow(question):
            return self._answer_later(call, asked, search)
        return self._answer(call, asked, search, search.understand(asked, question))

    def _domain_of(self, call: Call) -> Domain | None:
        named = call.head.get(self._header)
        if named is not None:
            return self._by_name.get(named.decode("latin-1").strip().lower())
        return self._by_model.get(call.model)

    def _ask(self, call: Call, asked: Asked) -> str:
        """Note the question, or say why there is none that could be looked for."""
        if asked.wishes.none:
            return "private"
        if call.size > self.config.largest_request:
            return "long"
        # The length in front keeps a name from looking like another's with the beginning of a domain.
        scope = f"{len(asked.owner)}:{asked.owner}:{asked.domain.name}"
        found = question_of(call, scope, self.config.longest_question)
        if isinstance(found, str):
            return found
        asked.question = found
        return ""

    async def _answer_later(self, call: Call, asked: Asked, search: Search) -> Reply | None:
        assert asked.question is not None
        return self._answer(call, asked, search, await call.offload(search.understand, asked, asked.question))

    def _answer(self, call: Call, asked: Asked, search: Search, why: str | None) -> Reply | None:
        """Of a question that was understood, or why it was not."""
        if why is not None:
            self._bypass(asked, why)
            return None
        if asked.wishes.reads:
            search.look(asked)
        reply = None
        asked.state = MISS
        if asked.like is not None and asked.domain.shadow:
            asked.state = SHADOW
        elif asked.like is not None:
            manner = Manner.of(call, {"stream_options": call.body.get("stream_options") if call.body else None})
            reply = given(call.route.name, asked.like.answer, manner, source=ALIKE)
            if reply is not None:
                asked.state = HIT
                self._note(asked, None)
        self._told[asked.domain.name, asked.state] += 1
        if reply is None and asked.wishes.only:
            raise _absent()
        return reply

    def _bypass(self, asked: Asked, why: str) -> None:
        """Leave a call alone."""
        asked.question, asked.state = None, BYPASS
        key = (asked.domain.name, why)
        self._bypassed[key] = self._bypassed.get(key, 0) + 1
        if asked.wishes.only:
            raise _absent()

    def on_stream(self, call: Call, head: Head) -> Tap | None:
        """Collect what may be kept, or is to be told beside what would have been given."""
        if ASKED not in call:
            return None
        asked = call[ASKED]
        if asked.question is None or not asked.wishes.kept:
            return None
        if asked.state == HIT or call.race is None or head.status != 200:
            return None
        asked.streamed = (head.get(b"content-type") or b"").lower().startswith(b"text/event-stream")
        asked.keep = Keep(self.config.largest_answer)
        return asked.keep

    def on_answer(self, call: Call, head: Head) -> None:
        """Say what came of it."""
        if ASKED in call:
            head.set(HEADER, call[ASKED].told)

    def on_complete(self, call: Call, outcome: Outcome) -> None:
        """Have a good answer kept."""
        if ASKED in call and call[ASKED].keep is not None and self._storing is not None:
            self._storing.take(call, outcome, call[ASKED])

    def _keep(self, asked: Asked, answer: Answer) -> None:
        """With an answer that is ready; one of a question that has its like is only told of."""
        if asked.state == SHADOW:
            self._note(asked, answer)
        elif self._memory is None or asked.began_ns < self._memory.purged_ns:
            return
        elif asked.question is not None and asked.vector is not None:
            self._memory.put(asked.scope, asked.vector, asked.question.text, answer)
            self._stored[asked.domain.name] += 1

    def _note(self, asked: Asked, answer: Answer | None) -> None:
        """A line of the report; `answer` is what was given in place of what is remembered."""
        if self._report is None or asked.like is None or asked.question is None:
            return
        self._report.add(
            time=self._now(),
            domain=asked.domain.name,
            shadow=asked.domain.shadow,
            similarity=round(asked.similarity, 4),
            question=asked.question.text,
            like=asked.like.question,
            remembered=text_of(asked.like.answer)[:_SHOWN],
            answered=None if answer is None else text_of(answer)[:_SHOWN],
        )

    async def asked(self, chain: Chain, question: str, fields: dict[str, Any]) -> Any:
        """Answer the admin port; raises Refused."""
        memory = self._memory
        if memory is None:
            return None
        if question == "stats":
            return {"entries": len(memory), "bytes": memory.size}
        if question != "purge":
            raise Refused(f"semantic_cache has no answer to '{question}'")
        memory.purged_ns = time.monotonic_ns()
        return {"purged": await purge(memory, chosen(chain, fields))}

    def metrics(self) -> Iterator[tuple[str, Mapping[str, str], float]]:
        """What was found, what guards kept from being given, and what is remembered."""
        for (domain, state), count in self._told.items():
            yield "asked_total", {"domain": domain, "outcome": state}, count
        for (domain, why), count in self._bypassed.items():
            yield "bypassed_total", {"domain": domain, "why": why}, count
        for domain, count in self._stored.items():
            yield "stored_total", {"domain": domain}, count
        if self._search is not None:
            for (domain, guard), count in self._search.objections.items():
                yield "guarded_total", {"domain": domain, "guard": guard}, count
        if self._storing is not None:
            yield "unfit_total", {}, self._storing.unfit
        if self._memory is not None:
            yield "entries", {}, len(self._memory)
            yield "bytes", {}, self._memory.size
            yield "evicted_total", {}, self._memory.evicted
        if self._report is not None:
            yield "report_dropped_total", {}, self._report.dropped


def _absent() -> Reject:
    text = "No kept answer to this request is at hand, and none but a kept one was wanted."
    return Reject(504, "not_cached", text, whose=Whose.CLIENT, kind="not_cached")
