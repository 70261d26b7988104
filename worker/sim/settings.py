"""Every knob of the simulated engine, as one frozen value."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Annotated, Literal

from tailrace.proxy.address import socket_fault
from tailrace.proxy.config import At, AtLeast, ConfigError, Covered, NotEmpty, Port, setting
from tailrace.worker.sim.failures import Amount, Count, Fault
from tailrace.worker.sim.profile import load_profile

AtLeastOne = Annotated[int, AtLeast(1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """A LoRA adapter, served as a model of its own name."""

    name: Annotated[str, NotEmpty()] = setting(help="the model name it answers to")
    path: str = setting(help="shown as its root")


@dataclass(frozen=True, slots=True, kw_only=True)
class SimSettings:
    """How a simulated engine listens, answers, and how fast.

    The names follow vLLM's own options where it has one. The `enable_*` defaults are those of the server that the
    reference captures were taken from, not vLLM's.
    """

    host: str = setting(default="127.0.0.1", help="address of the TCP port")
    port: Port | None = setting(default=0, help="0: any free one; in a worker's file a Unix socket is used instead")
    uds: str | None = setting(default=None, help="path of a Unix socket to listen on")

    model: Annotated[str, NotEmpty()] = setting(
        default="sim", help="shown as the model's root, and its name where none is given"
    )
    served_model_names: tuple[Annotated[str, NotEmpty()], ...] = setting(
        default=(), help="what the model answers to; the first is what it calls itself"
    )
    lora_modules: tuple[Adapter, ...] = setting(default=(), help="adapters served besides")
    runner: Literal["any", "generate", "pooling"] = setting(
        default="any", help="which routes there are: those of one kind of model, or all"
    )
    """A real engine serves one kind of model; `any` has the routes of both."""
    max_model_len: AtLeastOne = setting(default=2048, help="most tokens of prompt and answer together")
    api_keys: tuple[Annotated[str, Covered()], ...] = setting(default=(), help="one of these is needed on /v1")
    embedding_dim: AtLeastOne = setting(default=384, help="length of an embedding")

    profile: Annotated[str, NotEmpty()] | None = setting(
        default=None, help="a machine and a model to be as fast as: h200-8b, cpu-tiny or a file; replaces the next four"
    )
    """Steps of continuous batching instead of a beat a sequence. Its sizes hold where these are at their defaults."""
    ttft_ms: Amount = setting(default=20.0, help="from the end of the prefill to the first token")
    ttft_jitter: Amount = setting(default=0.0, help="sigma of the log-normal factor on it")
    prefill_tokens_per_s: Amount = setting(default=20_000.0, help="shared by all requests; 0 makes prefill free")
    """Shared by all requests, as on a GPU; 0 makes prefill free. Cached blocks cost nothing."""
    itl_ms: Amount = setting(default=10.0, help="between two tokens; 0: as fast as possible")
    answer_tokens: Count = setting(default=128, help="mean length of a chat answer; 0: no end")
    """Chat answers end by themselves after half to one and a half times this many tokens; 0: never."""

    text: Literal["plain", "mixed"] = setting(
        default="plain",
        help="what it says: English, or half of it emoji, other scripts and characters split over tokens",
    )

    max_num_seqs: AtLeastOne = setting(default=256, help="requests that run at once")
    max_num_queued_reqs: AtLeastOne | None = setting(default=None, help="running and waiting together; more get a 503")
    scheduling_policy: Literal["fcfs", "priority"] = setting(default="fcfs", help="order of the waiting ones")
    block_size: AtLeastOne = setting(default=32, help="tokens of a cache block")
    num_gpu_blocks: AtLeastOne = setting(default=4096, help="blocks of the prefix cache")
    seed: int | None = setting(
        default=None,
        help="of all that is drawn by chance, as are answers to requests with neither `temperature: 0` nor a seed",
    )

    enable_request_id_headers: bool = setting(default=True, help="x-request-id on every answer")
    enable_prompt_tokens_details: bool = setting(default=True, help="cached tokens in usage")
    enable_per_request_metrics: bool = setting(default=True, help="a metrics object in answers")
    enable_server_load_tracking: bool = setting(default=True, help="/load counts")

    shutdown_timeout: Amount = setting(
        default=0.0, help="what SIGTERM does: 0 hangs open streams, more drains them for so many seconds"
    )
    keep_alive_s: Amount = setting(default=5.0, help="idle connections are closed after so many seconds")
    faults: tuple[Fault, ...] = setting(default=(), help="failures that are armed from the start")
    keep_requests: Count = setting(default=0, help="last requests held for tests")

    def check(self) -> Iterator[At]:
        """A path that no socket can have, and two paces at once."""
        if self.uds is not None and (fault := socket_fault(self.uds)):
            yield At(fault, "uds")
        for name in _PACES if self.profile is not None else ():
            if getattr(self, name) != _defaults()[name]:
                yield At("means nothing beside a profile", name)

    def look(self) -> Iterator[At]:
        """A profile that cannot be had."""
        try:
            sizes = sized(self)
        except (OSError, ConfigError) as error:
            yield At(str(error), "profile")
            return
        if self.profile is not None and sizes.num_gpu_blocks * sizes.block_size < self.max_model_len:
            yield At("is more than the blocks of the KV cache hold", "max_model_len")

    @property
    def names(self) -> tuple[str, ...]:
        """The names this model answers to, the first of which it calls itself."""
        return self.served_model_names or (self.model,)


_PACES = ("ttft_ms", "ttft_jitter", "prefill_tokens_per_s", "itl_ms")
_SIZES = ("max_num_seqs", "block_size", "num_gpu_blocks")


@cache
def _defaults() -> dict[str, object]:
    return {field.name: field.default for field in fields(SimSettings)}


def sized(settings: SimSettings) -> SimSettings:
    """The settings with the sizes of their profile, where they have one and do not give others themselves."""
    if settings.profile is None:
        return settings
    profile = load_profile(settings.profile)
    taken = {name: getattr(profile, name) for name in _SIZES if getattr(settings, name) == _defaults()[name]}
    return replace(settings, **taken)
