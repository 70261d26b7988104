"""Warm-up: real prompts through a fresh engine until its time to first token holds still."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Sequence
from typing import Literal

import orjson
from tailrace.proxy.dialects import CHAT, Sign
from tailrace.proxy.sse import Splitter
from tailrace.worker.engine.client import EngineClient, Unanswered, whole
from tailrace.worker.engine.settings import WarmupSettings
from tailrace.worker.engine.state import Model, Warmth

log = logging.getLogger(__name__)

Route = Literal["chat", "completions", "embeddings"]
PATHS: dict[Route, str] = {
    "chat": "/v1/chat/completions",
    "completions": "/v1/completions",
    "embeddings": "/v1/embeddings",
}
NOISE = 0.005
"""Seconds by which times may differ whatever the spread: a tiny model's jitter is not coldness."""
TOKENS = 4
WORDS = 96
SENTENCE = (
    "the",
    "mill",
    "wheel",
    "turns",
    "while",
    "water",
    "leaves",
    "and",
    "sacks",
    "of",
    "flour",
    "are",
    "counted",
)


class WarmupFailed(Exception):  # noqa: N818 - a fact about the engine
    """The engine answers its health check but no prompt."""


class Refused(Exception):  # noqa: N818 - an answer of the engine's
    """The engine will not take prompts of this kind."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status} {text}")
        self.status = status


def steady(ttfts: Sequence[float], count: int, spread: float) -> bool:
    """Do the last `count` times lie within `spread` of the fastest of them."""
    if len(ttfts) < count:
        return False
    last = ttfts[-count:]
    return max(last) - min(last) <= max(spread * min(last), NOISE)


async def warm_up(
    client: EngineClient,
    settings: WarmupSettings,
    models: Sequence[Model],
    clock: Callable[[], float] = time.monotonic,
    note: Callable[[str], None] = lambda _: None,
) -> Warmth:
    """Send prompts one after another; returns how that went, or raises WarmupFailed.

    `note` is told what is waited for, and what failed. An engine that takes none of the kinds tried, or is too busy to
    take one, counts as warm: the reason is kept.
    """
    if settings.kind == "off":
        return Warmth(skipped="configured off")
    model = next((model for model in models if model.parent is None), Model(id=""))
    routes: tuple[Route, ...] = ("chat", "completions", "embeddings") if settings.kind == "auto" else (settings.kind,)
    deadline = clock() + settings.limit
    refusals = []
    for route in routes:
        try:
            ttfts = await _prompts(client, settings, route, model, deadline, note, clock)
        except Refused as refusal:
            refusals.append(f"{route}: {refusal}")
            if refusal.status in (401, 403):
                raise WarmupFailed(f"the engine refuses the sidecar's key: {refusal}") from None
            if refusal.status in (429, 503):
                break
            continue
        warmth = Warmth(kind=route, ttfts=tuple(ttfts), steady=steady(ttfts, settings.steady, settings.spread))
        shown = ", ".join(f"{ttft * 1000:.0f}" for ttft in ttfts)
        log.info(
            "warmed up with %s, time to first token in ms: %s%s", route, shown, "" if warmth.steady else " (not steady)"
        )
        return warmth
    reason = "; ".join(refusals)
    log.warning("no warm-up: the engine refused it (%s)", reason)
    return Warmth(skipped=f"refused: {reason}")


async def _prompts(
    client: EngineClient,
    settings: WarmupSettings,
    route: Route,
    model: Model,
    deadline: float,
    note: Callable[[str], None],
    clock: Callable[[], float],
) -> list[float]:
    ttfts: list[float] = []
    fault, failed = "no time was left", False
    for number in range(settings.prompts):
        left = deadline - clock()
        if left <= 0 or steady(ttfts, settings.steady, settings.spread):
            break
        note(f"no answer to prompt {number + 1} yet" + (f", the one before failed: {fault}" if failed else ""))
        try:
            ttfts.append(round(await _prompt(client, route, model, left, clock), 4))
        except Unanswered as silence:
            fault, failed = str(silence), True
            log.warning("warm-up prompt %d failed: %s", number + 1, fault)
            await asyncio.sleep(min(0.5, max(deadline - clock(), 0)))
    if not ttfts:
        raise WarmupFailed(f"no warm-up prompt was answered: {fault}")
    return ttfts


async def _prompt(client: EngineClient, route: Route, model: Model, limit: float, clock: Callable[[], float]) -> float:
    """Seconds to the first content of one fresh prompt."""
    began = clock()
    async with client.ask(PATHS[route], _body(route, model), limit=limit) as response:
        if response.status >= 500 and response.status != 503:
            raise ValueError(f"answers {response.status} {_message(await whole(response))}")
        if response.status != 200:
            raise Refused(response.status, _message(await whole(response)))
        if route == "embeddings":
            await whole(response)
            return clock() - began
        first = None
        splitter = Splitter()
        async for chunk in response.content.iter_any():
            for event in splitter.feed(chunk):
                sign = CHAT.judge(event)
                if sign in (Sign.ERROR, Sign.ABORTED):
                    raise ValueError(f"the stream fails: {_message(event.data)}")
                if first is None and sign in (Sign.CONTENT, Sign.FINISH):
                    first = clock() - began
        if first is None:
            raise ValueError("a stream without content")
        return first


def _body(route: Route, model: Model) -> dict[str, object]:
    words = max(min(WORDS, (model.max_length or WORDS * 4) // 4), 1)
    # The random beginning keeps the engine's prefix cache out of the measurement.
    text = " ".join([secrets.token_hex(4), *(SENTENCE[i % len(SENTENCE)] for i in range(words - 1))])
    body: dict[str, object] = {"model": model.id} if model.id else {}
    match route:
        case "chat":
            body["messages"] = [{"role": "user", "content": text}]
        case "completions":
            body["prompt"] = text
        case "embeddings":
            return body | {"input": text}
    return body | {"max_tokens": TOKENS, "temperature": 0, "stream": True}


def _message(body: bytes) -> str:
    """What an error's body says, in one short line."""
    try:
        error = orjson.loads(body)
    except ValueError:
        return ""
    if isinstance(error, dict):
        error = error.get("error") or error.get("detail") or error.get("message")
    if isinstance(error, dict):
        error = error.get("message")
    return " ".join(error.split())[:200] if isinstance(error, str) else ""
