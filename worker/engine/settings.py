"""What `engine:` may hold in a worker's YAML: an engine to launch, an engine to find, or a simulated one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from tailrace.proxy.config import Above, At, AtLeast, AtMost, NotEmpty, Seconds, Secret, setting
from tailrace.worker.engine.arguments import UNIX_PATH_BYTES, EngineError, find_vllm, listen
from tailrace.worker.sim.settings import SimSettings

Kind = Literal["auto", "chat", "completions", "embeddings", "off"]
Pause = Annotated[Seconds, Above(0)]
Count = Annotated[int, AtLeast(1)]
LARGEST_PID = 1 << 22
"""What Linux numbers processes up to, on machines of 64 bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmSettings:
    """A vLLM that the sidecar launches."""

    model: Annotated[str, NotEmpty()] = setting(help="name or folder of the model")
    args: dict[str, object] = setting(
        default_factory=dict,
        help="flags of `vllm serve` without dashes: true is a bare flag, false its --no- form, a list several values, "
        "a mapping JSON; without uds, host or port the engine serves on a private Unix socket",
    )
    env: dict[str, str] = setting(default_factory=dict, help="environment of the engine, beside the sidecar's own")
    executable: Annotated[str, NotEmpty()] = setting(default="vllm", help="the program, by name or path")

    def check(self) -> Iterator[str | At]:
        """Faults between fields, for the decoder."""
        if self.model.startswith("-"):
            yield At("expected a name or a folder, got a flag", "model")
        for name, value in self.args.items():
            if value is None:
                yield At("no value; true gives the bare flag", "args", name)
            if not name or name.startswith("-") or "=" in name or any(c.isspace() for c in name):
                yield At("this is not a flag's name; write it without dashes and value", "args", name)
        if "uds" in self.args and ("host" in self.args or "port" in self.args):
            yield At("give uds, or host and port, not both", "args", "uds")
        try:
            if "port" in self.args:
                listen(str(self.args.get("host", "")), self.args["port"])
            elif "uds" in self.args:
                listen(None, self.args["uds"])
        except EngineError as error:
            yield At(str(error), "args", "port" if "port" in self.args else "uds")

    def look(self) -> Iterator[At]:
        """What is not installed here: the program, or a model that is named by its folder."""
        try:
            find_vllm(self.executable, os.environ)
        except EngineError as error:
            yield At(str(error), "executable" if self.executable != "vllm" else "model")
        if self.model.startswith(("/", "./", "../")) and not Path(self.model).exists():
            yield At(f"there is no folder {self.model}", "model")


@dataclass(frozen=True, slots=True, kw_only=True)
class StartSettings:
    """How an engine is brought up, brought down, and brought up again."""

    limit: Pause = setting(
        default=240.0,
        help="how long a launched engine may take until its health check answers",
        why="a first vLLM start took 120 s with a tiny model; large ones load for minutes",
    )
    grace: Seconds = setting(
        default=10.0,
        help="between SIGTERM and SIGKILL; never less than the engine's own shutdown-timeout and five seconds",
        why="the sidecar has drained before; a vLLM with a stream still open does not end at all",
    )
    back_off: Pause = setting(
        default=1.0,
        help="pause before the first restart; doubles from failure to failure, and is drawn between half of it and all "
        "of it, so that replicas do not return together",
    )
    back_off_limit: Pause = setting(default=60.0, help="longest pause before a restart")
    long_run: Seconds = setting(
        default=300.0, help="a run that was ready for this long forgives the failures before it"
    )
    crash_loop: Count = setting(default=3, help="failures in a row from which on a crash loop is reported")

    def check(self) -> Iterator[str | At]:
        """Faults between fields, for the decoder."""
        if self.back_off > self.back_off_limit:
            yield At("`back_off` is above `back_off_limit`", "back_off")


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchSettings:
    """How often an engine is looked at, and when it is given up."""

    poll: Pause = setting(
        default=0.05,
        help="between readings of the load while there is any",
        why="a reading costs vLLM 0.5 ms; engines that answer with all their metrics are asked less often",
    )
    quiet_poll: Pause = setting(default=1.0, help="between readings of the load of an idle engine")
    health: Pause = setting(default=1.0, help="between health checks")
    models: Pause = setting(default=10.0, help="between readings of the list of models and adapters")
    timeout: Pause = setting(default=2.0, help="for any answer of the engine to the sidecar's own questions")
    failures: Count = setting(default=3, help="failed health checks in a row that mean death")
    stall: Seconds = setting(
        default=30.0,
        help="without any progress though there is work, until the engine is suspect; 0 = never",
        why="vLLM's health check answers 200 while its EngineCore is frozen",
    )
    hung: Seconds = setting(default=120.0, help="the same until it is given up for dead; 0 = never")


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmupSettings:
    """Prompts sent to a fresh engine until its time to first token holds still."""

    kind: Kind = setting(default="auto", help="what to send; auto finds out, off goes without")
    prompts: Count = setting(default=20, help="most prompts to send")
    limit: Pause = setting(default=60.0, help="longest time to spend on it")
    steady: Annotated[int, AtLeast(2)] = setting(default=3, help="how many prompts in a row must agree")
    spread: Annotated[float, AtLeast(0)] = setting(default=0.2, help="by which share of the fastest they may differ")

    def check(self) -> Iterator[str | At]:
        """Faults between fields, for the decoder."""
        if self.prompts < self.steady:
            yield At("`prompts` is below `steady`", "prompts")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """Exactly one of `vllm`, `url` and `sim`, and how to treat it."""

    vllm: VllmSettings | None = setting(default=None, help="a vLLM to launch")
    sim: SimSettings | None = setting(default=None, help="a simulated engine to launch")
    url: str | None = setting(default=None, help="http://host:port or unix:/path of an engine that somebody else runs")
    pid: Annotated[int, AtLeast(1), AtMost(LARGEST_PID)] | None = setting(
        default=None, help="that engine's process on this host, so that its end is seen at once"
    )
    pid_file: Path | None = setting(
        default=None, help="file that holds the pid; read again whenever the engine returns"
    )
    api_key: Secret | None = setting(default=None, help="key of that engine; a launched one's is in its args or env")
    start: StartSettings = setting(default=StartSettings(), help="start, stop, restart")
    watch: WatchSettings = setting(default=WatchSettings(), help="load and health")
    warmup: WarmupSettings = setting(default=WarmupSettings(), help="warm-up of a fresh engine")

    def check(self) -> Iterator[str | At]:
        """Faults between fields, for the decoder."""
        if [self.vllm, self.url, self.sim].count(None) != 2:
            yield "give exactly one of vllm, url and sim"
        if self.url is not None and (fault := target_fault(self.url)):
            yield At(fault, "url")
        if self.url is None and (self.pid is not None or self.pid_file is not None):
            yield At("`pid` and `pid_file` go with `url`", "pid" if self.pid is not None else "pid_file")
        if self.url is None and self.api_key is not None:
            yield At("`api_key` goes with `url`; a launched engine's key is in its args or env", "api_key")
        if self.pid is not None and self.pid_file is not None:
            yield At("give `pid` or `pid_file`, not both", "pid")
        for number, injected in enumerate(self.sim.faults if self.sim is not None else ()):
            for name in ("route", "message"):
                if "," in getattr(injected, name):
                    yield At("no comma can stand here", "sim", "faults", number, name)


def target_fault(target: str) -> str | None:
    """What keeps `target` from being an address that the sidecar can forward to."""
    if target.startswith("unix:"):
        path = target.removeprefix("unix:")
        if not path.startswith("/") or len(path.encode()) > UNIX_PATH_BYTES or "\0" in path:
            return f"a socket's path is absolute and at most {UNIX_PATH_BYTES} bytes"
        return None
    try:
        parts = urlsplit(target)
        parts.port  # noqa: B018
    except ValueError:
        return "its host or port makes no sense"
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return "expected http://host:port or unix:/path"
    if parts.path not in ("", "/") or parts.query or parts.fragment or parts.username is not None:
        return "an engine's address has no path, query, fragment or user in it"
    return None
