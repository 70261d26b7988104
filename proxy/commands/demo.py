"""`tailrace demo`: a gateway and simulated engines behind their sidecars, on this machine, with one command.

Everything runs under this process: when it ends, however it ends, all of it ends.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import aiohttp
import uvloop
from tailrace.proxy import logs
from tailrace.proxy.commands.init import template
from tailrace.proxy.config import parse
from tailrace.proxy.config.render import written
from tailrace.proxy.configuration import load
from tailrace.proxy.scratch import scratch
from tailrace.proxy.supervisor import Fatal, Supervisor

NAME = "demo"
HELP = "run a gateway with simulated engines on this machine"
START_LIMIT = 60.0
REQUEST = {"model": "demo", "messages": [{"role": "user", "content": "Say something."}], "max_tokens": 4}

GREETING = """\
ready {url}

Try it:

  curl -N {url}/v1/chat/completions -H 'content-type: application/json' \\
    -d '{{"model": "demo", "stream": true, "messages": [{{"role": "user", "content": "Hello!"}}]}}'

or with the OpenAI SDK:

  from openai import OpenAI

  client = OpenAI(base_url="{url}/v1", api_key="none-needed")
  for chunk in client.chat.completions.create(
      model="demo", stream=True, messages=[{{"role": "user", "content": "Hello!"}}]
  ):
      print(chunk.choices[0].delta.content or "", end="", flush=True)

Ctrl-C ends it."""


def describe(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    parser.add_argument("--port", type=int, default=8080, help="of the gateway; 0: any (default: %(default)s)")
    parser.add_argument("--workers", type=int, default=2, help="how many engines (default: %(default)s)")
    parser.add_argument(
        "--log-level",
        choices=logs.CHOICES,
        default="warning",
        help="least level shown on stderr (default: %(default)s)",
    )


def run(options: argparse.Namespace) -> int:
    """Run it until a signal."""
    if not 0 <= options.port <= 65535 or not 1 <= options.workers <= 64:
        raise Fatal("--port is 0 to 65535, --workers 1 to 64")
    logs.configure("demo", options.log_level)
    with (
        scratch("tailrace-demo-") as folder,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        return runner.run(_demo(folder, options.port, options.workers))


async def _demo(folder: Path, port: int, count: int) -> int:
    sockets = [f"unix:{folder / f'worker-{index}.sock'}" for index in range(count)]
    texts = [_worker(address) for address in sockets]
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def announce(line: str) -> None:
        if not ready.done():
            ready.set_result(line.removeprefix("ready "))

    workers = [
        Supervisor(load(_write(folder / f"worker-{index}.yaml", text)), lambda _line: None, who=f"worker[{index}]")
        for index, text in enumerate(texts)
    ]
    gateway = Supervisor(load(_write(folder / "gateway.yaml", _gateway(port, sockets))), announce)
    stopped = _obey_signals([gateway, *workers])
    running: list[asyncio.Future[Any]] = [asyncio.ensure_future(supervisor.run()) for supervisor in (*workers, gateway)]
    greeting: asyncio.Future[Any] = asyncio.ensure_future(_greet(ready))
    try:
        await asyncio.wait([*running, greeting, stopped], return_when=asyncio.FIRST_COMPLETED)
        if greeting.done() and not stopped.done():
            greeting.result()
            await asyncio.wait([*running, stopped], return_when=asyncio.FIRST_COMPLETED)
    finally:
        greeting.cancel()
        for supervisor in (gateway, *workers):
            supervisor.stop()
        ends = await asyncio.gather(*running, return_exceptions=True)
    for end in ends:
        if isinstance(end, BaseException):
            raise end
    return 0


def _obey_signals(supervisors: Iterable[Supervisor]) -> asyncio.Future[None]:
    """The first SIGINT or SIGTERM ends the demo in order, the next at once."""
    loop = asyncio.get_running_loop()
    stopped: asyncio.Future[None] = loop.create_future()

    def stop() -> None:
        if not stopped.done():
            stopped.set_result(None)
            return
        for supervisor in supervisors:
            supervisor.stop()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, stop)
    return stopped


async def _greet(ready: asyncio.Future[str]) -> None:
    """Say how to use it, once an answer has come through all of it."""
    url = await ready
    async with aiohttp.ClientSession(base_url=url) as session:
        try:
            async with asyncio.timeout(START_LIMIT):
                while not await _answers(session):  # noqa: ASYNC110 - others decide when, and do not tell
                    await asyncio.sleep(0.1)
        except TimeoutError:
            raise Fatal(f"no answer came through the gateway within {START_LIMIT:g} s") from None
    print(GREETING.format(url=url), flush=True)


async def _answers(session: aiohttp.ClientSession) -> bool:
    with contextlib.suppress(aiohttp.ClientError):
        async with session.get("/readyz") as ready:
            if ready.status != 200:
                # An engine that refuses because it starts is left alone for as long as it asks, also once it has.
                return False
        async with session.post("/v1/chat/completions", json=REQUEST) as answer:
            return answer.status == 200 and bool((await answer.json())["choices"])
    return False


def _gateway(port: int, workers: list[str]) -> str:
    plain = _plain("demo.yaml")
    plain["listen"] = f"127.0.0.1:{port}"
    plain["pools"]["demo"]["workers"] = workers
    return written(plain)


def _worker(address: str) -> str:
    plain = _plain("demo-worker.yaml")
    plain["listen"] = address
    return written(plain)


def _plain(name: str) -> dict[str, Any]:
    plain: dict[str, Any] = parse(template(name), name).root.plain()
    return plain


def _write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path
