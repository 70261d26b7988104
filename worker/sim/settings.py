"""Every knob of the simulated engine, as one frozen value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tailrace.worker.sim.failures import Fault


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """A LoRA adapter, served as a model of its own name."""

    name: str
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SimSettings:
    """How a simulated engine listens, answers, and how fast.

    The names follow vLLM's own options where it has one. The `enable_*` defaults are those of the server that the
    reference captures were taken from, not vLLM's.
    """

    host: str = "127.0.0.1"
    port: int | None = 0
    """0 lets the kernel choose; None means no TCP listener."""
    uds: str | None = None

    model: str = "sim"
    """Where the weights would be; shown as `root`, and the served name where none is given."""
    served_model_names: tuple[str, ...] = ()
    lora_modules: tuple[Adapter, ...] = ()
    runner: Literal["any", "generate", "pooling"] = "any"
    """A real engine serves one kind of model; `any` has the routes of both."""
    max_model_len: int = 2048
    api_keys: tuple[str, ...] = ()
    embedding_dim: int = 384

    ttft_ms: float = 20.0
    """From the end of the prefill to the first token."""
    ttft_jitter: float = 0.0
    """Sigma of the log-normal factor on `ttft_ms`."""
    prefill_tokens_per_s: float = 20_000.0
    """Shared by all requests, as on a GPU; 0 makes prefill free. Cached blocks cost nothing."""
    itl_ms: float = 10.0
    """Between two tokens of one sequence; 0 means as fast as this process can."""
    answer_tokens: int = 128
    """Chat answers end by themselves after half to one and a half times this many tokens; 0: never."""

    max_num_seqs: int = 256
    max_num_queued_reqs: int | None = None
    """As in vLLM, running and waiting requests count together."""
    scheduling_policy: Literal["fcfs", "priority"] = "fcfs"
    block_size: int = 32
    num_gpu_blocks: int = 4096
    seed: int | None = None
    """Of everything drawn by chance: unseeded sampling, jitter, a fault's share."""

    enable_request_id_headers: bool = True
    enable_prompt_tokens_details: bool = True
    enable_per_request_metrics: bool = True
    enable_server_load_tracking: bool = True

    shutdown_timeout: float = 0.0
    """What SIGTERM does: 0 hangs open streams for good, more drains them for so many seconds."""
    keep_alive_s: float = 5.0
    faults: tuple[Fault, ...] = ()
    keep_requests: int = 0
    """How many of the last requests `Sim.received` holds, for tests."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names this model answers to, the first of which it calls itself."""
        return self.served_model_names or (self.model,)
