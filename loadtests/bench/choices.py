#!/usr/bin/env python3
"""What the choice of a worker takes: of a real call, in a gateway with ten workers and one with a thousand.

Run it with the Python whose modules are to be timed:

.venv/bin/python loadtests/bench/choices.py             # as they are
.venv/compiled/bin/python loadtests/bench/choices.py    # as a wheel has them
"""

import argparse
import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import uvloop
from tailrace.proxy.attempt import Attempt
from tailrace.proxy.choosing import agreed, candidates_for, choose
from tailrace.proxy.config import decode_source, parse
from tailrace.proxy.gateway import running
from tailrace.proxy.outcome import AttemptEnd
from tailrace.proxy.plugin import Plugin
from tailrace.proxy.race import Race
from tailrace.proxy.reply import Reply
from tailrace.proxy.settings import Gateway
from tailrace.proxy.testing.client import RawClient

PATH = "/v1/chat/completions"
REPEATED = 20
STEPS = ("choice", "on_chosen", "on_commit", "on_attempt_end")
timed: dict[str, list[float]] = {}


@dataclass(frozen=True)
class Config:
    """How often."""

    times: int = 500


class Timer(Plugin[Config]):
    """Answers its one call after having chosen workers for it many times, as the attempt engine does."""

    Config = Config

    def on_request(self, call: Any) -> Reply:
        """Time the steps, the best of several rounds."""
        for _ in range(REPEATED):
            took = self._round(call)
            for step, nanoseconds in took.items():
                timed.setdefault(step, []).append(nanoseconds / self.config.times / 1000)
        return Reply(200, b"{}")

    def _round(self, call: Any) -> dict[str, int]:
        now, pipeline, race = time.perf_counter_ns, call.chain.pipeline, Race(call)
        took = dict.fromkeys(STEPS, 0)
        learning: tuple[tuple[str, tuple[Callable[..., None], ...], tuple[Any, ...]], ...] = (
            ("on_commit", pipeline.on_commit, ()),
            ("on_attempt_end", pipeline.on_attempt_end, (AttemptEnd.WON,)),
        )
        for _ in range(self.config.times):
            call._state = None
            began = now()
            worker = choose(call, candidates_for(call, call.entry, None), pipeline.score_workers)
            took["choice"] += now() - began
            attempt = Attempt(race, call, call.entry, worker, 1, "first")
            worker.inflight += 1
            began = now()
            agreed(call, attempt)
            took["on_chosen"] += now() - began
            attempt.sent_ns = time.monotonic_ns()
            attempt.first_content_ns = attempt.sent_ns + int(random.lognormvariate(0, 0.5) * 1e8)
            worker.inflight -= 1
            for step, hooks, rest in learning:
                began = now()
                for hook in hooks:
                    hook(call, attempt, *rest)
                took[step] += now() - began
        return took


def body(system: int) -> dict[str, Any]:
    """A chat under a system prompt of so many bytes."""
    said = " ".join("".join(random.choices("abcdefgh", k=6)) for _ in range(system // 7))
    messages = [{"role": "system", "content": said}, {"role": "user", "content": "And now to something else. " * 10}]
    return {"model": "m", "messages": messages, "stream": True}


async def measure(workers: int, policy: str, size: int, times: int) -> dict[str, float]:
    """Microseconds of each step."""
    timed.clear()
    urls = ", ".join(f"http://10.{number >> 16}.{number >> 8 & 255}.{number & 255}:8000" for number in range(workers))
    yaml = (
        f"listen: [127.0.0.1:0]\nmodels: {{m: {{workers: [{urls}]}}}}\n"
        f"plugins: [{{route: {{policy: {policy}}}}}, {{'choices:Timer': {{times: {times}}}}}]\n"
    )
    async with (
        running(decode_source(Gateway, parse(yaml, "bench.yaml"))) as process,
        RawClient(process.doors[0].shown) as client,
    ):
        answer = await client.post(PATH, body(size))
        assert answer.status == 200, answer.body
    return {step: min(found) for step, found in timed.items()}


def main() -> None:
    """Measure, and print a table."""
    p = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    p.add_argument("--times", type=int, default=500, help="choices in a round (default: %(default)s)")
    options = p.parse_args()
    # The gateway imports this file by its name, not as what was started.
    choices = import_module("choices")
    choices.timed = timed  # type: ignore[attr-defined]
    tail = import_module("tailrace.plugins.route.tail")
    assert tail.__file__ is not None
    print("compiled" if tail.__file__.endswith(".so") else "interpreted")
    print("| policy | workers | body | choice us | on_chosen us | on_commit us | on_attempt_end us |")
    print("| --- " * 7 + "|")
    for policy in ("least_inflight", "tail"):
        for workers in (10, 1000):
            for size in (600, 4000, 16000):
                took = uvloop.run(measure(workers, policy, size, options.times))
                figures = " | ".join(f"{took[step]:.1f}" for step in STEPS)
                print(f"| {policy} | {workers} | {size} | {figures} |", flush=True)


if __name__ == "__main__":
    main()
