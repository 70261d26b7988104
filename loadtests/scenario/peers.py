"""Other gateways before the same fleet, each with the retry settings that its own documentation names."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import yaml

from scenario import http, scrape
from scenario.gateway import FIRST
from scenario.place import MODEL, Place
from scenario.programs import Program, ProgramError

PEERS_DIR = Path(os.environ.get("PEERS_DIR", "/var/tmp/tailrace-bench"))
START_LIMIT = 300.0
_KEY = "sk-scenario-0000000000000000"

LITELLM_ROUTER = {
    "routing_strategy": "least-busy",
    "num_retries": 3,
    "allowed_fails": 1,
    "cooldown_time": 30,
    "timeout": 60,
    "stream_timeout": 10,
}


class Peer:
    """A gateway that is only started, asked and ended."""

    headers: dict[str, str] = {}

    def __init__(self, name: str, place: Place) -> None:
        self.name = name
        self._place = place
        self._port = place.port()
        self.at = f"127.0.0.1:{self._port}"
        self.in_rotation = True
        self.shown = ""
        self._program: Program | None = None
        if name == "litellm":
            self.headers = {"authorization": f"Bearer {_KEY}"}

    @property
    def pids(self) -> list[int]:
        return self._program.pids if self._program is not None else []

    async def start(self, workers: Sequence[str]) -> None:
        """Start it, and wait until a completion comes through."""
        command, env = self._command(workers)
        self.shown = " ".join((Path(command[0]).name, *command[1:]))
        if self.name == "litellm":
            self.shown += "; router_settings: " + ", ".join(f"{key}: {value}" for key, value in LITELLM_ROUTER.items())
        self._program = Program(self.name, command, self._place.log(self.name), env, nice=FIRST)
        self._program.start()
        await self._program.ready(self.healthy, START_LIMIT)

    async def healthy(self) -> bool:
        """Whether one real completion goes through."""
        asked = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}
        lines = "".join(f"{name}: {value}\r\n" for name, value in self.headers.items())
        try:
            return (await http.ask(self.at, "/v1/chat/completions", asked, headers=lines, limit=10.0))[0] == 200
        except OSError:
            return False

    async def page(self) -> scrape.Page:
        """Its own figures are not asked for."""
        return {}

    async def stop(self) -> None:
        if self._program is not None:
            await self._program.stop()

    def _command(self, workers: Sequence[str]) -> tuple[tuple[str, ...], dict[str, str]]:
        makers = {"litellm": self._litellm, "vllm-router": self._vllm_router, "production-stack": self._stack}
        command, env = makers[self.name](workers)
        if not Path(command[0]).exists():
            raise ProgramError(f"{self.name} is not installed: there is no {command[0]} (see $PEERS_DIR)")
        return command, env

    def _litellm(self, workers: Sequence[str]) -> tuple[tuple[str, ...], dict[str, str]]:
        """Router settings of its page on reliability: retries, a cooldown after failures, and a timeout."""
        file = self._place.folder / "litellm.yaml"
        deployments = [
            {
                "model_name": MODEL,
                "litellm_params": {"model": f"hosted_vllm/{MODEL}", "api_base": f"{url}/v1", "api_key": "none"},
            }
            for url in workers
        ]
        settings = {
            "model_list": deployments,
            "router_settings": LITELLM_ROUTER,
            "litellm_settings": {"set_verbose": False, "request_timeout": 60, "telemetry": False},
            "general_settings": {"master_key": _KEY},
        }
        file.write_text(yaml.safe_dump(settings, sort_keys=False))
        program = str(PEERS_DIR / "litellm" / "bin" / "litellm")
        command = (
            program,
            "--host",
            "127.0.0.1",
            "--port",
            str(self._port),
            "--num_workers",
            "1",
            "--config",
            str(file),
        )
        env = {
            "LITELLM_MODE": "PRODUCTION",
            "LITELLM_LOG": "ERROR",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
            "NO_DOCS": "True",
        }
        return command, env

    def _vllm_router(self, workers: Sequence[str]) -> tuple[tuple[str, ...], dict[str, str]]:
        """Retries, circuit breaker and health checks at their defaults, which are spelt out."""
        program = str(PEERS_DIR / "vllmrouter" / "bin" / "vllm-router")
        command = (
            *(program, "--host", "127.0.0.1", "--port", str(self._port), "--policy", "power_of_two"),
            *("--worker-urls", *workers, "--log-level", "warning"),
            *("--retry-max-retries", "5", "--retry-initial-backoff-ms", "50", "--retry-max-backoff-ms", "30000"),
            *("--cb-failure-threshold", "10", "--cb-timeout-duration-secs", "60"),
            *("--health-failure-threshold", "3", "--health-check-interval-secs", "60"),
            *("--prometheus-host", "127.0.0.1", "--prometheus-port", str(self._place.port())),
        )
        return command, {}

    def _stack(self, workers: Sequence[str]) -> tuple[tuple[str, ...], dict[str, str]]:
        """Its router with fail-over between static backends and their health checks."""
        program = str(PEERS_DIR / "pstack" / "bin" / "vllm-router")
        command = (
            *(program, "--host", "127.0.0.1", "--port", str(self._port), "--service-discovery", "static"),
            *("--static-backends", ",".join(workers), "--static-models", ",".join([MODEL] * len(workers))),
            *("--static-backend-health-checks", "--static-model-types", ",".join(["chat"] * len(workers))),
            *("--routing-logic", "roundrobin", "--log-level", "warning"),
            *("--max-instance-failover-reroute-attempts", "3"),
        )
        return command, {}
