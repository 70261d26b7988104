"""The proxies that can be measured. Each listens on its own port and forwards to the mock worker on port 19000."""

import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

BENCH = Path(__file__).resolve().parents[1]
REPOSITORY = BENCH.parents[1]
PEERS_DIR = Path(os.environ.get("PEERS_DIR", "/var/tmp/tailrace-bench"))
RUN_DIR = PEERS_DIR / "run"

PROXY_CORE = 0
RIG_CORE = 1


@dataclass(frozen=True, slots=True)
class Proxy:
    """One proxy: `commands` start its processes, in order; all of them are pinned and counted together.

    `headers` are what its clients send beside the rest.
    """

    name: str
    port: int
    commands: tuple[tuple[str, ...], ...]
    needs: Path | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    headers: tuple[str, ...] = ()

    @property
    def installed(self) -> bool:
        return self.needs is None or self.needs.exists()


def _python() -> str:
    """The interpreter of the Python peers: their own if installed, else the one that runs this."""
    own = PEERS_DIR / "naive" / "bin" / "python"
    return str(own) if own.exists() else sys.executable


ENVIRONMENT = REPOSITORY / ".venv"
COMPILED = ENVIRONMENT / "compiled"
"""Where `make` puts a wheel, whose hot modules are compiled."""


def _serve(config: str, environment: Path = COMPILED) -> tuple[str, ...]:
    return (str(environment / "bin" / "tailrace"), "serve", str(BENCH / config))


_NGINX = shutil.which("nginx", path=os.environ.get("PATH", "") + ":/usr/sbin")
_VLLM_ROUTER = PEERS_DIR / "vllmrouter" / "bin" / "vllm-router"
_LITELLM = PEERS_DIR / "litellm" / "bin" / "litellm"

PROXIES = {
    proxy.name: proxy
    for proxy in (
        Proxy("tailrace", 19050, (_serve("tailrace.yaml"),)),
        Proxy(
            "money",
            19054,
            (_serve("money.yaml"),),
            env={"TAILRACE_BENCH_STATE": str(RUN_DIR / "state")},
            headers=("Authorization: Bearer tr-benchmark-key-0000000000000000",),
        ),
        Proxy(
            "everything",
            19055,
            (_serve("everything.yaml"),),
            env={"TAILRACE_BENCH_STATE": str(RUN_DIR / "state-everything")},
            headers=("Authorization: Bearer tr-benchmark-key-0000000000000000",),
        ),
        Proxy("failures", 19056, (_serve("failures.yaml"),)),
        Proxy("interpreted", 19053, (_serve("interpreted.yaml", ENVIRONMENT),)),
        Proxy("sidecar", 19052, (_serve("sidecar-worker.yaml"), _serve("sidecar-gateway.yaml"))),
        Proxy("naive", 19012, ((_python(), str(BENCH / "peers" / "naive_aiohttp.py"), "19012"),)),
        Proxy("rawfloor", 19013, ((_python(), str(BENCH / "peers" / "raw_floor.py"), "19013"),)),
        Proxy(
            "nginx",
            19001,
            ((_NGINX or "nginx", "-p", f"{RUN_DIR}/", "-e", "stderr", "-c", str(BENCH / "peers" / "nginx.conf")),),
            needs=Path(_NGINX or "/nonexistent"),
        ),
        Proxy(
            "vllm-router",
            19007,
            (
                (
                    *(str(_VLLM_ROUTER), "--host", "127.0.0.1", "--port", "19007", "--policy", "round_robin"),
                    *("--worker-urls", "http://127.0.0.1:19000", "--log-level", "warning"),
                    *("--prometheus-host", "127.0.0.1", "--prometheus-port", "19107"),
                ),
            ),
            needs=_VLLM_ROUTER,
        ),
        Proxy(
            "litellm",
            19014,
            (
                (
                    *(str(_LITELLM), "--host", "127.0.0.1", "--port", "19014", "--num_workers", "1"),
                    *("--config", str(BENCH / "peers" / "litellm.yaml")),
                ),
            ),
            needs=_LITELLM,
            env={
                "LITELLM_MODE": "PRODUCTION",
                "LITELLM_LOG": "ERROR",
                "LITELLM_LOCAL_MODEL_COST_MAP": "True",
                "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
                "NO_DOCS": "True",
            },
            headers=("Authorization: Bearer sk-benchmark-0000000000000000",),
        ),
    )
}
