"""Plugins of sampled calls are timed, and only theirs."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Any

from fakes import CHAT, GOOD, PATH, RawClient, Upstream, gateway, run, yaml_for
from tailrace.proxy.fault import Reject
from tailrace.proxy.plugin import Plugin
from tailrace.proxy.reply import Reply
from tailrace.proxy.trace.told import Record

SAMPLED = {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}


@dataclass(frozen=True)
class Config:
    how: str = ""


class Slow(Plugin[Config]):
    """Takes its time in each phase."""

    Config = Config

    async def on_request(self, call: Any) -> Reply | None:
        await asyncio.sleep(0.002)
        if self.config.how == "reject":
            raise Reject(403, "no", "No.")
        return Reply(200, b"{}") if self.config.how == "reply" else None

    def score_workers(self, call: Any, candidates: Any) -> list[float]:
        time.sleep(0.001)
        return [1.0] * len(candidates)

    def on_answer(self, call: Any, head: Any) -> None:
        time.sleep(0.001)


class Quick(Plugin[Config]):
    """Takes none."""

    Config = Config

    def on_request(self, call: Any) -> None:
        pass


def phases(how: str = "", headers: dict[str, str] | None = SAMPLED) -> tuple[int, list[tuple[str, str]], Any]:
    async def body() -> tuple[int, list[tuple[str, str]], Any]:
        plugins = f"- trace: {{ratio: 0}}\n- {__name__}:Quick: {{}}\n- {__name__}:Slow: {{how: '{how}'}}\n"
        async with Upstream(GOOD) as upstream, gateway(yaml_for(upstream, plugins=plugins)) as process:
            async with RawClient(process.doors[0].shown) as client:
                status = (await client.post(PATH, CHAT, headers)).status
            chain = process.service.chain
            record = Record.of(process.service.ring.all()[0])
            assert record.trace is not None
            assert chain.calls.count == 0
            # A quick one may be kept from running for a while by whatever else this machine does.
            found = [(name, phase) for name, phase, _, _ in record.trace.phases if not name.endswith("Quick")]
            return status, found, record

    return run(body())


def test_phases_that_took_a_while_are_told() -> None:
    status, found, record = phases()
    slow = f"{__name__}:Slow"
    assert status == 200
    assert found == [(slow, "on_request"), (slow, "score_workers"), (slow, "on_answer")]
    assert all(took >= 1_000_000 for name, _, _, took in record.trace.phases if name == slow)


def test_those_that_answer_or_refuse_too() -> None:
    slow = f"{__name__}:Slow"
    status, found, _ = phases("reply")
    assert (status, found) == (200, [(slow, "on_request"), (slow, "on_answer")])
    status, found, _ = phases("reject")
    assert (status, found) == (403, [(slow, "on_request"), (slow, "on_answer")])


def test_calls_that_are_not_sampled_are_not_timed() -> None:
    status, found, _ = phases(headers=None)
    assert (status, found) == (200, [])


def test_a_plugin_that_fails_is_still_named(caplog: Any) -> None:
    async def body() -> None:
        plugins = f"- trace: {{ratio: 1}}\n- {__name__}:Failing: {{}}\n"
        async with Upstream(GOOD) as upstream, gateway(yaml_for(upstream, plugins=plugins)) as process:
            async with RawClient(process.doors[0].shown) as client:
                assert (await client.post(PATH, CHAT)).status == 500

    run(body())
    assert f"plugin '{__name__}:Failing' failed in on_chosen" in caplog.text


class Failing(Plugin[Config]):
    """Raises."""

    Config = Config

    def on_chosen(self, call: Any, attempt: Any) -> bool:
        raise ValueError("a mistake")
