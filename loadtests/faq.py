#!/usr/bin/env python3
"""Many people ask a few questions: hit rates and times to first token with and without `cache`.

loadtests/faq.py --rate 40 --seconds 30

A simulated engine, a gateway and an open loop of streams, the same questions at the same times for both. Some questions
are asked far more often than others (by a Zipf law), some are asked once only.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections import Counter
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random

BIN = Path(sys.executable).parent
HOW = ("hit", "follow", "miss", "bypass")
_WORDS = "when where how why what order parcel invoice address return refund size colour payment account"
CHAINS = {"without": "[route]", "with": "[cache: {}, route]"}


class Ask:
    """One request and what came of it; times are seconds since it was due."""

    def __init__(self, due: float, text: str) -> None:
        self.due = due
        self.text = text
        self.how = "error"
        self.first = self.total = float("nan")


def laid_down(options: argparse.Namespace) -> list[Ask]:
    """All requests with their due times: the same for the same seed."""
    random = Random(options.seed)
    words = _WORDS.split()
    asked = [" ".join(random.choices(words, k=options.words)) for _ in range(options.questions)]
    weights = [1 / rank**options.skew for rank in range(1, options.questions + 1)]
    due, asks = 0.0, []
    while (due := due + random.expovariate(options.rate)) < options.seconds:
        once = random.random() < options.once
        text = f"{random.random()} {asked[0]}" if once else random.choices(asked, weights)[0]
        asks.append(Ask(due, text))
    return asks


async def ask(it: Ask, port: int, began: float) -> None:
    """Send one request when it is due and read its stream."""
    await asyncio.sleep(max(0.0, began + it.due - time.monotonic()))
    due = began + it.due
    body = json.dumps(
        {"model": "m", "temperature": 0, "stream": True, "messages": [{"role": "user", "content": it.text}]}
    ).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nconnection: close\r\n"
            b"content-length: %d\r\n\r\n%b" % (len(body), body)
        )
        head = await reader.readuntil(b"\r\n\r\n")
        how = head.lower().partition(b"x-tailrace-cache: ")[2].partition(b"\r\n")[0].decode() or "miss"
        seen = b""
        while data := await reader.read(65536):
            seen += data
            if it.first != it.first and seen.count(b'"content":"') > 1:
                it.first = time.monotonic() - due
        if b"[DONE]" not in seen:
            raise ValueError(head + seen)
        it.total, it.how = time.monotonic() - due, how
    finally:
        writer.close()


@asynccontextmanager
async def program(*command: str, ready: str):
    """A program until the end of the block; gives the word behind `ready` in its output."""
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    try:
        while ready not in (line := (await process.stdout.readline()).decode()):
            if not line:
                raise SystemExit(f"{command[0]} ended")
        draining = asyncio.ensure_future(process.stdout.read())
        yield line.partition(ready)[2].split()[0]
        process.terminate()
        await draining
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def measure(asks: list[Ask], chain: str, options: argparse.Namespace) -> None:
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        sim = (
            "sim",
            "--served-model-name",
            "m",
            "--port",
            "0",
            "--ttft-ms",
            "80",
            "--ttft-jitter",
            "0.3",
            "--itl-ms",
            "8",
            "--answer-tokens",
            "60",
        )
        engine = await stack.enter_async_context(
            program(str(BIN / "tailrace"), *sim, "--max-num-seqs", str(options.places), ready="ready ")
        )
        file = folder / "gateway.yaml"
        file.write_text(
            f"listen: 127.0.0.1:0\nadmin: off\npre_stop: 0\nstate: {folder}\n"
            f"models: {{m: {{workers: ['{engine}']}}}}\nplugins: {chain}\n"
        )
        url = await stack.enter_async_context(program(str(BIN / "tailrace"), "serve", str(file), ready="ready "))
        port = int(url.rstrip("/,").rpartition(":")[2])
        began = time.monotonic() + 0.5
        came = await asyncio.gather(*(ask(it, port, began) for it in asks), return_exceptions=True)
        failed = [each for each in came if each is not None]
        if failed:
            print(f"{len(failed)} requests failed, such as: {failed[0]!r}", file=sys.stderr)


def row(name: str, asks: list[Ask]) -> str:
    firsts = sorted(it.first for it in asks if it.how in HOW)
    totals = sorted(it.total for it in asks if it.how in HOW)
    if not firsts:
        return f"{name:9} {len(asks):6}"
    told = [firsts[min(len(firsts) - 1, int(len(firsts) * part))] * 1000 for part in (0.5, 0.9, 0.99)]
    return f"{name:9} {len(asks):6} " + " ".join(f"{ms:9.1f}" for ms in (*told, totals[len(totals) // 2] * 1000))


def main() -> None:
    p = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    p.add_argument("--seed", type=int, default=1, help="of questions and times (default: %(default)s)")
    p.add_argument("--rate", type=float, default=40, help="requests a second (default: %(default)s)")
    p.add_argument("--seconds", type=float, default=30, help="how long (default: %(default)s)")
    p.add_argument("--questions", type=int, default=400, help="that are asked again and again (default: %(default)s)")
    p.add_argument("--skew", type=float, default=1.0, help="exponent of the Zipf law (default: %(default)s)")
    p.add_argument("--once", type=float, default=0.15, help="share of questions that nobody asks twice")
    p.add_argument("--words", type=int, default=20, help="of a question (default: %(default)s)")
    p.add_argument(
        "--places", type=int, default=24, help="requests that the engine runs at once (default: %(default)s)"
    )
    options = p.parse_args()
    os.environ.setdefault("TAILRACE_LOG_LEVEL", "info")
    print(f"{'':9} {'calls':>6} {'TTFT p50':>9} {'p90':>9} {'p99':>9} {'total p50':>9}   (ms)")
    for name, chain in CHAINS.items():
        asks = laid_down(options)
        asyncio.run(measure(asks, chain, options))
        print(row(name, asks))
        if name == "with":
            counts = Counter(it.how for it in asks)
            for how in (*HOW, "error"):
                if counts[how]:
                    print(row(f"  {how}", [it for it in asks if it.how == how]) + f"   {counts[how] / len(asks):.1%}")


if __name__ == "__main__":
    main()
