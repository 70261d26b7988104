"""Budgets in money: reserved by what a call can cost at most, settled by what it did cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fakes import CHAT, answer, decoded, gateway, run, yaml_for
from limited import limited, using
from served import launch
from tailrace.proxy.pipeline import ChainError

# A thousandth of a unit for a token, and a hundredth for a request.
RATES = "[1000000000000, 100000000000, 1000000000000, 10000000]"
MOST = {**CHAT, "max_tokens": 100}


def test_a_budget_is_settled_by_the_tariff_and_spent_to_its_end(tmp_path: Path) -> None:
    async def body() -> None:
        # Each call costs 0.01 + 30 * 0.001.
        async with limited(tmp_path, "[]", using(10, 20), rates=RATES) as s:
            who: dict[str, Any] = {"key": "k", "limits": [{"money": "1", "per": "day"}]}
            seen = [await s.ask({**MOST, "max_tokens": 20}, **who) for _ in range(40)]
            served = sum(got.status == 200 for got in seen)
            assert 21 <= served <= 25
            refused = seen[-1]
            assert (refused.status, refused.json()["error"]["code"]) == (429, "insufficient_quota")
            assert refused.header("x-should-retry") == "false"
            assert (await s.ask(MOST, key="other", limits=who["limits"])).status == 200

    run(body())


def test_cached_tokens_cost_what_the_tariff_says(tmp_path: Path) -> None:
    usage = b'{"prompt_tokens":200,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":200}}'
    script = answer(200, b'{"id":"c","choices":[{"index":0,"message":{"content":"x"}}],"usage":' + usage + b"}")

    async def body() -> None:
        async with limited(tmp_path, "[{money: '1', per: day}]", script, rates=RATES) as s:
            # 0.031 each, not 0.211.
            seen = [(await s.ask({**CHAT, "max_tokens": 1})).status for _ in range(26)]
            assert seen == [200] * 26

    run(body())


def test_an_error_of_the_engine_costs_nothing(tmp_path: Path) -> None:
    async def body() -> None:
        async with limited(tmp_path, "[{money: '0.5', per: day}]", answer(500, b'{"error":{}}'), rates=RATES) as s:
            assert {(await s.ask(MOST)).status for _ in range(20)} <= {500, 502, 503}
            purse = s.quota._asking.purse  # type: ignore[union-attr]
            assert sum(lease.left + purse._idle(lease) for lease in purse._leases.values()) == 500_000_000

    run(body())


def test_a_limit_in_money_needs_somebody_who_knows_prices(tmp_path: Path) -> None:
    yaml = yaml_for("http://127.0.0.1:1", plugins="- quota: {limits: [{money: '5', per: day}]}")

    async def body() -> None:
        with pytest.raises(ChainError, match="'quota' needs Tariff, which no plugin before it provides"):
            async with gateway(yaml + f"state: {tmp_path / 's'}\n"):
                pass
        (tmp_path / "gateway.yaml").write_text(yaml)
        checking = await launch("check", str(tmp_path / "gateway.yaml"))
        out, err = await checking.communicate()
        assert checking.returncode != 0
        assert b"needs Tariff" in out + err

    decoded(yaml)
    run(body())
