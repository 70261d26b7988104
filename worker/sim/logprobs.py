"""Made-up log-probabilities: the same for the same token in the same place."""

from __future__ import annotations

from typing import Any
from zlib import crc32

from tailrace.worker.sim.sequence import Sequence
from tailrace.worker.sim.text import alternatives
from tailrace.worker.sim.tokenizer import TOKEN_BYTES

Ranked = list[tuple[int, float]]


def ranked(seq: Sequence, count: int) -> Ranked:
    """The latest token and others, `count` in all, likeliest first, each with its log-probability; the token at least.

    The token said counts as the likeliest, as with greedy sampling it is.
    """
    token = seq.ids[-1]
    before = seq.ids[-2] if len(seq.ids) > 1 else (seq.prompt[-1] if seq.prompt else token)
    drawn = crc32(b"logprob", seq.state)
    at = -0.05 - (drawn % 20_000) / 10_000
    found: Ranked = [(token, at)]
    others = [other for other in alternatives(seq.after, seq.state, before, count) if other != token]
    for other in others[: max(0, count - 1)]:
        at -= 0.1 + (crc32(b"next", drawn) % 10_000) / 10_000
        found.append((other, at))
    return found


def _entry(token: int, logprob: float) -> dict[str, Any]:
    piece = TOKEN_BYTES[token]
    return {"token": piece.decode("utf-8", "replace"), "logprob": logprob, "bytes": list(piece)}


def chat_logprobs(found: Ranked, top: int) -> dict[str, Any]:
    """One token's entry of a chat choice's `logprobs.content`."""
    return _entry(*found[0]) | {"top_logprobs": [_entry(*one) for one in found[:top]]}


def completion_logprobs(found: list[Ranked], offset: int) -> dict[str, Any]:
    """The `logprobs` object of a completion: lists with one item a token."""
    tokens = [TOKEN_BYTES[one[0][0]].decode("utf-8", "replace") for one in found]
    offsets: list[int] = []
    for token in tokens:
        offsets.append(offset)
        offset += len(token)
    return {
        "text_offset": offsets,
        "token_logprobs": [one[0][1] for one in found],
        "tokens": tokens,
        "top_logprobs": [{TOKEN_BYTES[t].decode("utf-8", "replace"): p for t, p in one} for one in found],
    }
