"""The objects that say what an answer took: token counts and times."""

from __future__ import annotations

from collections.abc import Sequence as Many
from typing import Any

from tailrace.worker.sim.sequence import Sequence
from tailrace.worker.sim.settings import SimSettings

Json = dict[str, Any]

_TIMES = ("time_to_first_token_ms", "generation_time_ms", "queue_time_ms", "mean_itl_ms", "tokens_per_second")


def counts(prompt: int, completion: int) -> Json:
    """The three numbers every usage object has."""
    return {"prompt_tokens": prompt, "total_tokens": prompt + completion, "completion_tokens": completion}


def running(seq: Sequence, said: int) -> Json | None:
    """The usage object in the middle of a stream, of a choice that has said so much; None where none is told."""
    if seq.claim is None:
        return counts(len(seq.prompt), said)
    return None if untold([seq]) else counts(_claimed(seq, len(seq.prompt)), _claimed(seq, said, said=True))


def untold(sequences: Many[Sequence]) -> bool:
    """Whether the answer keeps its usage to itself."""
    claim = sequences[0].claim
    return claim is not None and claim.fail == "no_usage"


def prompt_tokens(sequences: Many[Sequence]) -> int:
    """Tokens of the different prompts: the samples of one prompt share it."""
    prompts = {id(seq.prompt): len(seq.prompt) for seq in sequences}
    return _claimed(sequences[0], sum(prompts.values()))


def completion_tokens(sequences: Many[Sequence]) -> int:
    """Tokens said in all."""
    return _claimed(sequences[0], sum(len(seq.ids) for seq in sequences), said=True)


def _claimed(seq: Sequence, true: int, *, said: bool = False) -> int:
    """What is told where so many tokens are true."""
    claim = seq.claim
    if claim is None or claim.fail != "wrong_usage":
        return true
    told = claim.completion_tokens if said else claim.prompt_tokens
    if told is not None:
        return told
    # Who names one of the two wants the other to be true.
    named = claim.prompt_tokens is not None or claim.completion_tokens is not None
    return true if named else round(true * claim.factor)


def cache_details(settings: SimSettings, seq: Sequence, *, created: bool) -> Json | None:
    """`prompt_tokens_details` of a stream; None where the server does not give them."""
    if not settings.enable_prompt_tokens_details:
        return None
    details = {"cached_tokens": seq.cached}
    if created:
        details["created_cache_tokens"] = seq.created
    return details


def full_usage(settings: SimSettings, sequences: Many[Sequence], *, created: bool) -> Json | None:
    """The usage object of a whole answer, with every field."""
    if untold(sequences):
        return None
    usage = counts(prompt_tokens(sequences), completion_tokens(sequences))
    details = cache_details(settings, sequences[0], created=True)
    if details is not None:
        if not created:
            details["created_cache_tokens"] = None
        details["multimodal_tokens"] = None
    return usage | {"prompt_tokens_details": details, "completion_tokens_details": None}


def stream_usage(settings: SimSettings, sequences: Many[Sequence], *, created: bool) -> Json | None:
    """The usage object of a stream's last chunk, with the fields that are set."""
    if untold(sequences):
        return None
    usage = counts(prompt_tokens(sequences), completion_tokens(sequences))
    details = cache_details(settings, sequences[0], created=created)
    return usage if details is None else usage | {"prompt_tokens_details": details}


def timing(settings: SimSettings, sequences: Many[Sequence]) -> Json | None:
    """The `metrics` object, with the fields that are set; None unless one sequence made the answer."""
    if not settings.enable_per_request_metrics or len(sequences) != 1 or not sequences[0].ids:
        return None
    seq = sequences[0]
    said, first, after = len(seq.ids), seq.first - seq.arrived, seq.latest - seq.first
    times = {
        "time_to_first_token_ms": first * 1000,
        "generation_time_ms": after * 1000,
        "queue_time_ms": (seq.started - seq.arrived) * 1000,
    }
    if said > 1:
        times["mean_itl_ms"] = after * 1000 / (said - 1)
    if first + after > 0:
        times["tokens_per_second"] = said / (first + after)
    return times


def full_timing(settings: SimSettings, sequences: Many[Sequence]) -> Json | None:
    """The `metrics` object with every field."""
    times = timing(settings, sequences)
    if times is None:
        return None
    return {name: times.get(name) for name in _TIMES} | {"speculative_decoding": None}
