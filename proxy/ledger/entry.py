"""A settled call on its way from the memory it was settled in to the log and the sink.

Calls differ in little: what they have in common is put into words once, as JSON and as columns, and shared by them all.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from tailrace.proxy.ledger.record import ORPHAN, VERSION, Late, Opening

WHEN, AMOUNT, STATUS, PROMPT, CACHED, COMPLETION, REQUESTS, DELIVERED = 2, 3, 4, 5, 6, 7, 8, 9
LOST_PROMPT, LOST_COMPLETION, LOST_AMOUNT, ESTIMATED = 10, 11, 12, 13
"""Places in an entry's `numbers`, which are those of `layout.NUMBERS`."""

VARYING: Final = (
    "charge_key", "call", "opened_ns", "settled_ns", "amount", "status", "prompt", "cached", "completion", "requests",
    "delivered", "lost_prompt", "lost_completion", "lost_amount", "estimated",
)  # fmt: skip
"""The columns that every entry has of its own."""

COMMON: Final = (
    "ledger", "tenant", "key", "tags", "model", "deployment", "echoed_model", "class", "route", "ending", "currency",
    "price_version", "unpriced", "worker", "v",
)  # fmt: skip
"""Those that many entries share."""

_NULL: Final = "\0"
_NO_NULL: Final = "\ufffd"
_encode: Final = msgspec.json.Encoder().encode


class Words:
    """What is the same in many records: who called, for what, at which prices, how it ended, and in which process."""

    __slots__ = ("_after_amount", "_after_call", "_after_status", "_at_end", "columns", "group", "orphan", "unpriced")

    def __init__(self, opening: Opening, late: Late, worker: str) -> None:
        self.group = opening.model, opening.currency
        self.orphan = late.ending == ORPHAN
        self.unpriced = opening.rates is None
        tags = _json(opening.tags)
        texts = (
            opening.tenant, opening.key, tags, opening.model, opening.deployment, late.echoed_model,
            opening.service_class, opening.route, late.ending, opening.currency, opening.price_version,
        )  # fmt: skip
        common: tuple[Any, ...] = (*[storable(text) for text in texts], int(self.unpriced), storable(worker), VERSION)
        self.columns = common
        """COMMON but for the ledger."""
        self._after_call = (
            f',"tenant":{_json(opening.tenant)},"key":{_json(opening.key)},"tags":{tags},"model":{_json(opening.model)}'
            f',"deployment":{_json(opening.deployment)},"echoed_model":{_json(late.echoed_model)}'
            f',"class":{_json(opening.service_class)},"route":{_json(opening.route)},"status":'
        )
        self._after_status = f',"ending":{_json(late.ending)},"prompt":'
        self._after_amount = f',"currency":{_json(opening.currency)},"price_version":{_json(opening.price_version)}'
        self._at_end = f',"worker":{_json(worker)},"v":{VERSION}}}'

    def text(self, entry: Entry) -> bytes:
        """The JSON of a record in these words."""
        n = entry.numbers
        key, call = entry.charge_key, entry.call
        names = f'"{key}"' if entry.plain else _json(key)
        called = f'"{call}"' if entry.plain else _json(call)
        estimated = "true" if n[ESTIMATED] else "false"
        unpriced = "true" if self.unpriced else "false"
        return (
            f'{{"charge_key":{names},"opened_ns":{entry.opened_ns},"settled_ns":{n[2]},"call":{called}'
            f'{self._after_call}{n[4]}{self._after_status}{n[5]},"cached":{n[6]},"completion":{n[7]},"requests":{n[8]}'
            f',"amount":{n[3]}{self._after_amount},"estimated":{estimated},"unpriced":{unpriced},"lost_prompt":{n[10]}'
            f',"lost_completion":{n[11]},"lost_amount":{n[12]},"delivered":{n[9]}{self._at_end}'
        ).encode()


class Entry:
    """One record. `plain` says that JSON escapes nothing in its charge key and call."""

    __slots__ = ("call", "charge_key", "numbers", "opened_ns", "plain", "words")

    def __init__(
        self, words: Words, charge_key: str, call: str, plain: bool, opened_ns: int, numbers: tuple[Any, ...]
    ) -> None:
        self.words = words
        self.charge_key = charge_key
        self.call = call
        self.plain = plain
        self.opened_ns = opened_ns
        self.numbers = numbers

    def text(self) -> bytes:
        """The record as the log has it."""
        return self.words.text(self)

    def varying(self) -> tuple[Any, ...]:
        """VARYING of this one; what is true or false is 1 or 0."""
        key, call = self.charge_key, self.call
        if not self.plain:
            key, call = storable(key), storable(call)
        return (key, call, self.opened_ns) + self.numbers[WHEN:]  # noqa: RUF005 - compiled, a star costs a list


def storable(text: str) -> str:
    """A text without the one character that PostgreSQL cannot hold."""
    return text.replace(_NULL, _NO_NULL) if _NULL in text else text


def _json(value: str | tuple[str, ...]) -> str:
    return _encode(value).decode()
