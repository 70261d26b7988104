"""How fast a kind of machine is with a kind of model: what a profile file says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated

from tailrace.proxy.config import At, AtLeast, decode_source, parse, setting
from tailrace.worker.sim.failures import Amount

FOLDER = Path(__file__).parent / "profiles"
"""The profiles that come along."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The costs of a step of a continuously batching engine, in milliseconds, and the sizes that bound it.

    One step computes a token of every running answer and, with what is left of its budget of tokens, pieces of the
    prompts that have begun; it takes as long as all of that together.
    """

    overhead_ms: Amount = setting(help="from the request to the engine and back, once an answer")
    step_ms: Amount = setting(help="what every step takes: the weights are read, kernels started")
    decode_ms_per_sequence: Amount = setting(help="and for each answer that it goes on with")
    decode_ms_per_1k_kv: Amount = setting(help="and for each thousand tokens of KV cache that those hold")
    prefill_ms_per_1k: Amount = setting(help="and for each thousand tokens of prompts")
    prefill_ms_per_1k_at_1k: Amount = setting(
        default=0.0, help="and for each thousand tokens of prompts, a thousand tokens into them: attention"
    )
    jitter: Amount = setting(default=0.0, help="sigma of the log-normal factor on each step")
    max_num_batched_tokens: Annotated[int, AtLeast(1)] = setting(help="most tokens of a step")
    max_num_seqs: Annotated[int, AtLeast(1)] = setting(help="most answers of a step")
    block_size: Annotated[int, AtLeast(1)] = setting(help="tokens of a block of the KV cache")
    num_gpu_blocks: Annotated[int, AtLeast(1)] = setting(help="blocks of the KV cache")

    def check(self) -> Iterator[At]:
        """A step of nothing at all would go on for ever without time passing."""
        if not self.step_ms:
            yield At("must be more than 0", "step_ms")
        if self.max_num_batched_tokens < self.max_num_seqs:
            yield At("must be at least max_num_seqs", "max_num_batched_tokens")

    def step_seconds(self, sequences: int, kv: int, prompt: int, depth: int) -> float:
        """How long a step takes that goes on with so many answers and so much of prompts.

        `kv` counts the tokens that those answers hold, `depth` the tokens of prompts each times those before it.
        """
        return (
            self.step_ms
            + self.decode_ms_per_sequence * sequences
            + self.decode_ms_per_1k_kv * kv / 1e3
            + self.prefill_ms_per_1k * prompt / 1e3
            + self.prefill_ms_per_1k_at_1k * depth / 1e6
        ) / 1e3


def profile_path(name: str) -> Path:
    """The file of a profile: one that comes along by its name, any other by its path."""
    return FOLDER / f"{name}.yaml" if "/" not in name and not name.endswith(".yaml") else Path(name)


@cache
def load_profile(name: str) -> Profile:
    """Read a profile; OSError or ConfigError say why it cannot be."""
    path = profile_path(name)
    return decode_source(Profile, parse(path.read_text(), str(path)))
