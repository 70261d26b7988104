"""Makes answers ready for keeping, in a thread of its own, one after the other."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

import orjson
from tailrace.proxy.stored.answer import Answer
from tailrace.proxy.stored.keeping import ended_well, stored_form

if TYPE_CHECKING:
    from tailrace.plugins.semantic_cache.asked import Asked
    from tailrace.proxy.call import Call
    from tailrace.proxy.outcome import Outcome
    from tailrace.proxy.personal import Finder

log: Final = logging.getLogger("tailrace")
_WAITING: Final = 256
_UNSAID: Final = frozenset(
    {"id", "created", "model", "object", "system_fingerprint", "role", "type", "finish_reason", "stop_reason"}
)


class Storing:
    """`keep` is called in the loop with what is ready; what comes while 256 wait is not kept."""

    def __init__(self, personal: Finder, now: Callable[[], float], keep: Callable[[Asked, Answer], None]) -> None:
        self._personal = personal
        self._now = now
        self._keep = keep
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="semantic-cache")
        self._waiting = 0
        self.unfit = 0
        """Answers that were not kept: not whole, too long, with something personal, or too many at once."""

    def close(self) -> None:
        """Let go of the thread; what waits is not kept."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def take(self, call: Call, outcome: Outcome, asked: Asked) -> None:
        """Have the answer of a call that is over kept, if it is a good one."""
        taken = None if asked.keep is None or not ended_well(call, outcome) else asked.keep.taken
        asked.keep = None
        if taken is None or self._waiting >= _WAITING:
            self.unfit += 1
            return
        self._waiting += 1
        job = call.client.loop.run_in_executor(self._thread, self._ready, call, outcome, asked, taken)
        job.add_done_callback(lambda done: self._done(asked, done))

    def _ready(self, call: Call, outcome: Outcome, asked: Asked, taken: bytes) -> Answer | None:
        usage, entry = outcome.usage, call.entry
        body = stored_form(call, taken, streamed=asked.streamed, usage=usage)
        if body is None or entry is None:
            return None
        if self._personal.finds("\n".join(_texts_of(orjson.loads(body)))):
            return None
        now = self._now()
        model = entry.served or call.model
        answer = Answer(body, b"", now, now + asked.domain.ttl, asked.tenant, model, call.route.name)
        if usage is not None:
            answer.prompt, answer.completion, answer.cached = usage.prompt, usage.completion, usage.cached
        return answer

    def _done(self, asked: Asked, done: asyncio.Future[Answer | None]) -> None:
        self._waiting -= 1
        if done.cancelled():
            return
        error = done.exception()
        if error is not None:
            log.error("an answer could not be made ready for the semantic cache", exc_info=error)
            return
        answer = done.result()
        if answer is None:
            self.unfit += 1
        else:
            self._keep(asked, answer)


def text_of(answer: Answer) -> str:
    """All that an answer says."""
    return "\n".join(_texts_of(orjson.loads(answer.body)))


def _texts_of(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, each in value.items():
            if name not in _UNSAID:
                yield from _texts_of(each)
    elif isinstance(value, list):
        for each in value:
            yield from _texts_of(each)
