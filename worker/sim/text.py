"""What the simulated model says next.

The choice hangs on nothing but a running checksum over the ids so far (prompt and answer) and the token before it.
Hence a greedy answer resumed on another replica, from prompt ids and output ids, goes on exactly as it would have here.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from zlib import crc32

from tailrace.worker.sim.tokenizer import BYTE, EOS, ID_OF, IM_END, IM_START, VOCAB_SIZE, encode
from tailrace.worker.sim.words import BROKEN, FIRST_BYTES, MULTIBYTE, SPELT_IN_BYTES, STRAY, WORDS

_SLOTS = 1024
_PACKED: tuple[bytes, ...] = tuple(struct.pack("<I", i) for i in range(VOCAB_SIZE))


def _table(*shares: tuple[int, list[int]]) -> tuple[int, ...]:
    """A thousand slots, filled by weight and spread, so that neighbours differ."""
    filled = [ids[(n * 7919) % len(ids)] for weight, ids in shares for n in range(weight)]
    return tuple(filled[(i * 389) % len(filled)] for i in range(_SLOTS))


def _ids(words: list[str], form: str) -> list[int]:
    found = {form.format(word) for word in words}
    return [ID_OF[piece] for piece in (word.encode() for word in sorted(found)) if piece in ID_OF]


Table = tuple[tuple[int, ...], ...]
"""For each token the slots that may follow it."""


def _after(*word: tuple[int, list[int]]) -> Table:
    """The slots after every token, those after a word being given."""
    lower, capital = _ids(WORDS, " {}"), _ids([w.title() for w in WORDS], " {}")
    comma, stop, ask, paragraph = BYTE + ord(","), BYTE + ord("."), BYTE + ord("?"), ID_OF[b"\n\n"]
    opening = _table((_SLOTS, _ids([w.title() for w in WORDS], "{}")))
    after = [_table(*word)] * VOCAB_SIZE
    for token in (stop, ask):
        after[token] = _table((960, capital), (64, [paragraph]))
    for token in (paragraph, BYTE + ord("\n"), EOS, IM_START, IM_END):
        after[token] = opening
    after[comma] = _table((_SLOTS, lower))
    after[ID_OF[BROKEN]] = _table((_SLOTS, [BYTE + b for b in range(0x80, 0xC0) if b not in SPELT_IN_BYTES]))
    for byte, following in SPELT_IN_BYTES.items():
        after[BYTE + byte] = _table((_SLOTS, [BYTE + b for b in following]))
    return tuple(after)


def _tables() -> dict[str, Table]:
    lower, many = _ids(WORDS, " {}"), _ids(MULTIBYTE, " {}")
    comma, stop, ask, broken = [BYTE + ord(",")], [BYTE + ord(".")], [BYTE + ord("?")], [ID_OF[BROKEN]]
    first = [BYTE + byte for byte in FIRST_BYTES]
    return {
        "plain": _after((860, lower), (70, comma), (50, stop), (8, ask), (28, many), (8, broken)),
        "mixed": _after(
            (480, lower),
            (60, comma),
            (40, stop),
            (8, ask),
            (240, many),
            (80, broken),
            (100, first),
            (16, [BYTE + STRAY]),
        ),
    }


TABLES = _tables()
"""What follows what: `plain` is English with a foreign word now and then; in `mixed` almost every second word is
foreign or an emoji, many are split over tokens or spelt byte by byte, and a few bytes are part of no character."""
_HEADER = len(encode("assistant\n"))


def checksum(ids: Sequence[int], salt: int) -> int:
    """The state of a conversation whose ids so far are these."""
    return crc32(array("I", ids), salt)


def next_token(after: Table, state: int, last: int) -> int:
    """The token that follows, given the checksum and the token before."""
    return after[last][((state * 0x9E3779B1) & 0xFFFFFFFF) >> 22]


def advance(state: int, token: int) -> int:
    """The checksum with one more token."""
    return crc32(_PACKED[token], state)


def alternatives(after: Table, state: int, last: int, count: int) -> list[int]:
    """Tokens that might have followed instead."""
    slots = after[last]
    start = ((state * 0x9E3779B1) & 0xFFFFFFFF) >> 22
    chosen = slots[start]
    found = dict.fromkeys(slots[(start + 1 + i) % _SLOTS] for i in range(_SLOTS))
    found.pop(chosen, None)
    return list(found)[:count]


def natural_length(prompt: Sequence[int], salt: int, mean: int) -> int | None:
    """How many tokens more the answer that this prompt has begun will take; None without a chat turn to end.

    Counted from the last start of a turn, so that it comes out the same when part of the answer is already there.
    """
    if mean <= 0:
        return None
    for back, token in enumerate(reversed(prompt)):
        if token == IM_START:
            begun = len(prompt) - back
            drawn = checksum(prompt[:begun], salt) * 0x9E3779B1 & 0xFFFFFFFF
            length = mean // 2 + drawn % (mean + 1)
            return max(0, length - (back - _HEADER))
    return None
